"""The content of an image: base images, MPI, processor, and the Horovod to build."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, FrozenSet, Iterable, Mapping

import archspec.cpu
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import externals
from hvd.model import recipe, specs
from hvd.model.environment import HOROVOD, Environment
from hvd.model.specs import Spec
from hvd.model.versions import Images, pinned
from hvd.solve import kept, site_check

#: The part of the checkout that goes into the image: what the pip engine needs.
FILES = ("hvd", "ci", "packages", "repo.yaml", "environments/local-hvd/spack.yaml")
#: MPIs by their common ABI, https://www.mpich.org/abi/; Spectrum MPI promises none.
ABI = {
    "mpich": ("mpich", "cray-mpich", "intel-mpi", "intel-oneapi-mpi", "mvapich", "mvapich2"),
    "openmpi": ("openmpi",),
}
#: Families that the pinned frameworks have wheels for.
_FAMILIES = ("x86_64", "aarch64")
#: Variants that the pip engine cannot build, or not from wheels.
_REFUSED = {
    "rocm": "no PyTorch for ROCm is pinned",
    "ddl": "IBM's DDL is not available",
    "ccl": "no oneCCL is pinned",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The content of an image."""

    environment: str
    spec: str  #: the py-horovod to build in the image
    version: str  #: Horovod's
    frameworks: FrozenSet[str]  #: those of the spec
    images: Images  #: the base images
    mpi: str  #: the ABI, a key of `ABI`; empty for none
    requirement: str  #: the pip requirement of that MPI; empty for none

    @property
    def mpi_prefix(self) -> str:
        """The directory of the MPI in the image."""
        return f"/opt/{self.mpi}"


def make(environment: Environment, mpi: str = "", target: str = "") -> Plan:
    """Plan an image with the Horovod of ``environment``.

    Args:
        environment: a site's gives the processor and the ABI of the MPI; the frameworks are
            those pinned in ``ci/versions.yaml``.
        mpi: another ABI, a key of `ABI`.
        target: another processor, named as in archspec.

    Raises:
        HvdError: such an image cannot be built.
    """
    root = environment.root
    known = recipe.load(HOROVOD)
    version = next((v for v in known.versions() if specs.version_in(v, root.versions or ":")), "")
    if not version:
        missing = f"the recipe has no {HOROVOD}@{root.versions}"
        raise HvdError(missing, "name another version with --spec")
    variants = known.complete(root).variants
    variants.pop("os", None)
    targets = variants.pop("target", frozenset())
    if not target and isinstance(targets, frozenset):
        target = min(targets, default="")
    target = _target(target)
    frameworks = variants["frameworks"]
    architectures = _architectures(environment, variants)
    variants.update(architectures)
    for name, reason in _REFUSED.items():
        if variants.get(name) is True:
            problem = f"an image with +{name} cannot be built: {reason}"
            raise HvdError(problem, f"leave it out with --spec '{HOROVOD} ~{name} ...'")
    gpu = variants.get("cuda") is True
    others = sorted({*frameworks} - {"pytorch"})
    if gpu and others:
        raise HvdError(
            f"no {others[0]} for CUDA is pinned in {paths.shorten(paths.VERSIONS)}",
            f"use --spec '{HOROVOD} ... frameworks:=pytorch', or one with ~cuda",
        )
    container = pinned().container
    images = container.images["cuda" if gpu else "cpu"]
    dependencies = _pinned(frameworks, images)
    abi = _abi(environment, mpi) if variants.get("mpi") is True else ""
    requirement = container.mpi[abi] if abi else ""
    if abi:
        dependencies[abi] = Spec(abi, _version(requirement))
    known.check(Spec(HOROVOD, version, variants, dependencies))
    kept = {key: value for key, value in root.variants.items() if key != "os"}
    spec = Spec(HOROVOD, version, {**kept, **architectures, "target": frozenset([target])})
    return Plan(environment.name, str(spec), version, frameworks, images, abi, requirement)


def _architectures(environment: Environment, variants: Mapping[str, Any]) -> Dict[str, Any]:
    """The GPU architectures in a site's solution; its spec may leave them open."""
    # a derived environment has no kept solution, and names them in its spec
    there = environment.site and kept.file(environment).is_file()
    if there and variants.get("cuda") is True:
        for package in kept.load(environment).packages:
            for word in package.variants:
                name, _, values = word.partition("=")
                if (package.name, name) == (HOROVOD, "cuda_arch"):
                    return {name: frozenset(values.split(","))}
    return {}


def _pinned(frameworks: Iterable[str], images: Images) -> Dict[str, Spec]:
    """The pinned frameworks by their Spack packages."""
    found = {}
    for chosen in pinned().framework.chosen(frameworks):
        if images.python not in SpecifierSet(chosen.python):
            raise HvdError(
                f"the pinned frameworks need Python {chosen.python}, and {images.run} has "
                f"{images.python}",
                f"change one of them in {paths.shorten(paths.VERSIONS)}",
            )
        for text in chosen.requirements:
            requirement = Requirement(text)
            marker = requirement.marker
            if not marker or marker.evaluate({"python_version": images.python}):
                found[canonicalize_name(requirement.name)] = _version(text)
    packages = externals.by_package(found)
    return {package: Spec(package, version) for package, version in packages.items()}


def _abi(environment: Environment, asked: str) -> str:
    """The ABI of the host's MPI, which replaces the image's."""
    if asked and asked not in ABI:
        raise HvdError(f"--mpi: no ABI is called '{asked}'", f"use {' or '.join(ABI)}")
    if asked or not environment.site:
        return asked or "openmpi"
    provided = site_check.externals(site_check.file(environment.site))
    for abi, packages in ABI.items():
        if not provided.keys().isdisjoint(packages):
            return abi
    raise HvdError(
        f"the MPI of {environment.site} has the ABI of neither {' nor '.join(ABI)}",
        "for an image with one of them, for ranks on one node, use --mpi openmpi",
    )


def _target(name: str) -> str:
    """The processor ``name``, or the default one, if there are wheels for it."""
    host = archspec.cpu.host().family.name
    # x86_64_v3 means those since 2013
    name = name or {"x86_64": "x86_64_v3"}.get(host, host)
    if name not in archspec.cpu.TARGETS:
        problem = f"--target: archspec knows no processor called '{name}'"
        raise HvdError(problem, "use for example x86_64_v3")
    family = archspec.cpu.TARGETS[name].family.name
    if family not in _FAMILIES:
        raise HvdError(
            f"the pinned frameworks have no wheels for {family} ({name})",
            f"choose another processor with --target, of {' or '.join(_FAMILIES)}",
        )
    return name


def _version(requirement: str) -> str:
    (exact,) = Requirement(requirement).specifier
    return exact.version
