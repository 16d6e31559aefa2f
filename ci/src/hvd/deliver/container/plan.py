"""What goes into an image: base images, MPI, processor, and the Horovod that is built."""

from __future__ import annotations

import dataclasses
import re
from typing import FrozenSet, List, Tuple

import archspec.cpu
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import externals
from hvd.model import pins, recipe, specs
from hvd.model.environment import HOROVOD, Environment
from hvd.model.pins import Images
from hvd.model.specs import Spec
from hvd.solve import dag_table, site_check

#: MPIs by the ABI that they share, https://www.mpich.org/abi/; Spectrum MPI promises none.
ABI = {
    "mpich": ("mpich", "cray-mpich", "intel-mpi", "intel-oneapi-mpi", "mvapich", "mvapich2"),
    "openmpi": ("openmpi",),
}
#: The processors that images are for where neither the site nor the user says, by family:
#: x86_64_v3 are those since 2013.
_TARGETS = {"x86_64": "x86_64_v3"}
#: Families that the pinned frameworks have wheels for.
_FAMILIES = ("x86_64", "aarch64")
#: What the pip engine does not build, or not from wheels.
_REFUSED = {
    "rocm": "no PyTorch for ROCm is pinned",
    "ddl": "IBM's DDL is not to be had",
    "ccl": "no oneCCL is pinned",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What goes into an image.

    Args:
        environment: its name.
        spec: the py-horovod that is built in the image.
        version: Horovod's.
        frameworks: those of the spec.
        images: the base images.
        mpi: the ABI, a key of `ABI`; empty for none.
        requirement: of that MPI; empty for none.
        gpu: whether it is for GPUs.
    """

    environment: str
    spec: str
    version: str
    frameworks: FrozenSet[str]
    images: Images
    mpi: str
    requirement: str
    gpu: bool


def make(environment: Environment, mpi: str = "", target: str = "") -> Plan:
    """The plan for the Horovod of ``environment``.

    Args:
        environment: a site's: its processor and the ABI of its MPI are taken; the frameworks
            are those pinned in ``ci/versions.yaml``.
        mpi: another ABI, a key of `ABI`.
        target: another processor, as archspec calls it.

    Raises:
        HvdError: there is no such image; says why, and what to do.
    """
    root = environment.root
    known = recipe.load(HOROVOD)
    version = next((v for v in known.versions() if specs.version_in(v, root.versions or ":")), "")
    if not version:
        raise HvdError(f"the recipe has no {HOROVOD}@{root.versions}", "--spec names another")
    variants = known.complete(root).variants
    target = _target(target or min(_listed(variants.pop("target", frozenset())), default=""))
    variants.pop("os", None)
    chosen = frozenset(_listed(variants["frameworks"]))
    architectures = _architectures(environment, variants)
    variants.update(architectures)
    gpu = variants.get("cuda") is True
    _refuse(variants, chosen, gpu)
    pinned = pins.versions().container
    images = pinned.images["cuda" if gpu else "cpu"]
    have = _pinned(chosen, images)
    abi = _abi(environment, mpi) if variants.get("mpi") is True else ""
    requirement = pinned.mpi[abi] if abi else ""
    if requirement:
        have[abi] = Spec(abi, _version(requirement))
    known.check(Spec(HOROVOD, version, variants, have))
    kept = {key: value for key, value in root.variants.items() if key not in ("os", "target")}
    spec = Spec(HOROVOD, version, {**kept, **architectures, "target": frozenset([target])})
    return Plan(environment.name, str(spec), version, chosen, images, abi, requirement, gpu)


def _refuse(variants: dict, frameworks: FrozenSet[str], gpu: bool) -> None:
    for name, reason in _REFUSED.items():
        if variants.get(name) is True:
            raise HvdError(
                f"an image with +{name} cannot be made: {reason}",
                f"leave it out with --spec '{HOROVOD} ~{name} ...'",
            )
    other = sorted(frameworks - {"pytorch"})
    if gpu and other:
        raise HvdError(
            f"no {other[0]} for CUDA is pinned in {paths.shorten(paths.VERSIONS)}",
            f"--spec '{HOROVOD} ... frameworks:=pytorch', or one with ~cuda",
        )


def _architectures(environment: Environment, variants: dict) -> dict:
    """The GPUs' architectures, which a site's solution has where its spec leaves them open."""
    if not environment.site or variants.get("cuda") is not True:
        return {}
    table = dag_table.file(environment)
    if not table.is_file():
        return {}  # it was derived, and then its spec says so
    row = re.search(rf"^\| {HOROVOD} \|.*\bcuda_arch=(\S+)", table.read_text(), re.MULTILINE)
    return {"cuda_arch": frozenset(row[1].split(","))} if row else {}


def _pinned(frameworks: FrozenSet[str], images: Images) -> dict:
    """The pinned frameworks as Spack knows them, by package."""
    found = {}
    for chosen in pins.versions().framework.chosen(frameworks):
        if images.python not in SpecifierSet(chosen.python):
            raise HvdError(
                f"the pinned frameworks need Python {chosen.python}, and {images.run} has "
                f"{images.python}",
                f"change one of them in {paths.shorten(paths.VERSIONS)}",
            )
        for text in chosen.requirements:
            requirement = Requirement(text)
            environment = {"python_version": images.python}
            if requirement.marker is None or requirement.marker.evaluate(environment):
                name = canonicalize_name(requirement.name)
                found[name] = _version(text)
    return {
        package: Spec(package, version) for package, version in externals.by_package(found).items()
    }


def _abi(environment: Environment, asked: str) -> str:
    """The ABI of the MPI that takes the place of the image's."""
    if asked:
        if asked not in ABI:
            raise HvdError(f"--mpi: no ABI is called '{asked}'", f"use {' or '.join(ABI)}")
        return asked
    if not environment.site:
        return "openmpi"
    provided = site_check.externals(site_check.file(environment.site))
    for abi, packages in ABI.items():
        if any(package in provided for package in packages):
            return abi
    raise HvdError(
        f"the MPI of {environment.site} has the ABI of neither {' nor '.join(ABI)}",
        "an image with one of them, for ranks on one node: --mpi openmpi",
    )


def _target(name: str) -> str:
    """A processor that archspec knows and that there are wheels for; the usual one for ''."""
    host = archspec.cpu.host().family.name
    name = name or _TARGETS.get(host, host)
    if name not in archspec.cpu.TARGETS:
        raise HvdError(
            f"--target: archspec knows no processor called '{name}'", "for example x86_64_v3"
        )
    family = archspec.cpu.TARGETS[name].family.name
    if family not in _FAMILIES:
        raise HvdError(
            f"the pinned frameworks have no wheels for {family} ({name})",
            f"an image for another: --target, of {' or '.join(_FAMILIES)}",
        )
    return name


def _version(requirement: str) -> str:
    (exact,) = Requirement(requirement).specifier
    return exact.version


def _listed(value: object) -> Tuple[str, ...]:
    return tuple(sorted(value)) if isinstance(value, frozenset) else ()


def files() -> List[str]:
    """What of the checkout goes into the image, relative to it: what building with pip takes."""
    return ["hvd", "ci", "packages", "repo.yaml", "environments/local-hvd/spack.yaml"]
