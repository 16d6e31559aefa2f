"""Definitions of container images: a Containerfile, or one for Apptainer.

In the image, ``./hvd`` builds with the pip engine, the pinned frameworks and an MPI of the host's
ABI.  ``spack containerize`` does not serve: it copies ``spack.yaml`` alone into the image, without
the files that it includes and without this package repository, and so builds Spack's own
py-horovod, and PyTorch from source.
"""

from __future__ import annotations

import platform

import archspec.cpu

from hvd.core import templates
from hvd.core.errors import HvdError
from hvd.host.mpi import KINDS
from hvd.model import recipe, specs
from hvd.model.check_build import PLUGINS
from hvd.model.environment import HOROVOD, Environment
from hvd.model.specs import Spec
from hvd.model.versions import pinned
from hvd.solve import kept, site_check

#: The part of the checkout that goes into the image: what the pip engine needs.
_FILES = ("hvd", "ci", "packages", "repo.yaml", "environments/local-hvd/spack.yaml")
#: What an image does at build time, in the image.
_SCRIPT = "/opt/hvd/ci/src/hvd/deliver/image.sh"
#: Families that the pinned frameworks have wheels for.
_FAMILIES = ("x86_64", "aarch64")
#: Variants whose libraries are not pinned.
_REFUSED = ("rocm", "ddl", "ccl")


def render(environment: Environment, format: str, mpi: str = "", target: str = "") -> str:
    """The definition of an image with the Horovod of ``environment``.

    Args:
        environment: a site's gives the processor, the GPUs and the ABI of the MPI.
        format: ``apptainer`` or ``containerfile``.
        mpi: another ABI, such as ``mpich``.
        target: another processor, named as in archspec.
    """
    root, known = environment.root, recipe.load(HOROVOD)
    variants = known.complete(root).variants
    frameworks, gpu = sorted(variants["frameworks"]), variants.get("cuda") is True
    pinned().framework.chosen(frameworks)
    versions = [v for v in known.versions() if specs.version_in(v, root.versions or ":")]
    refused = [f"+{name}" for name in _REFUSED if variants.get(name) is True]
    refused += [f"{name} for CUDA" for name in frameworks if gpu and name != "pytorch"]
    if refused or not versions:
        raise HvdError(
            f"an image cannot have {refused[0] if refused else root}: no version is pinned",
            f"name another Horovod: --spec '{HOROVOD} ... frameworks:=pytorch'",
        )
    site, pinned_mpis = environment.site, pinned().container.mpi
    if variants.get("mpi") is not True:
        mpi = ""
    elif not mpi:
        provided = site_check.externals(site_check.file(site)) if site else ["openmpi"]
        mpi = min({KINDS[each].abi for each in provided if each in KINDS} - {""}, default="other")
    if mpi and mpi not in pinned_mpis:
        hint = f"--mpi {' or '.join(pinned_mpis)}"
        raise HvdError(f"no MPI with the ABI '{mpi}' is pinned", hint)
    # x86_64_v3 means processors since 2013
    default = {"x86_64": "x86_64_v3"}.get(machine := platform.machine(), machine)
    target = target or min(variants.get("target", ()), default=default)
    processor = archspec.cpu.TARGETS.get(target)
    if not processor or processor.family.name not in _FAMILIES:
        raise HvdError(
            f"the pinned frameworks have no wheels for '{target}'",
            f"choose another processor with --target, of {' or '.join(_FAMILIES)}",
        )
    chosen = {**root.variants, "target": frozenset([target])}
    chosen.pop("os", None)
    if site and gpu and kept.file(environment).exists():
        # a site's spec may leave them open, its solution does not
        (solved,) = (p for p in kept.load(environment).packages if p.name == HOROVOD)
        values = dict(word.partition("=")[::2] for word in solved.variants)
        chosen["cuda_arch"] = frozenset(values["cuda_arch"].split(","))
    spec = Spec(HOROVOD, versions[0], chosen)
    images = pinned().container.images["cuda" if gpu else "cpu"]
    prefixes = [f"/opt/{mpi}"] if mpi else []
    template = templates.environment().get_template(f"deliver/templates/{format}.j2")
    return template.render(
        environment=environment.name,
        images=images,
        files=_FILES,
        script=_SCRIPT,
        spec=str(spec),
        mpi=pinned_mpis[mpi] if mpi else "",
        modules=[PLUGINS[name] for name in frameworks if name in PLUGINS],
        kept=["/opt/hvd/.hvd", "/opt/hvd/ci/src/hvd/smoke", _SCRIPT, *prefixes],
        path=":".join(f"{prefix}/bin" for prefix in ["/opt/horovod", *prefixes]),
        labels={
            "org.opencontainers.image.title": environment.name,
            "org.opencontainers.image.version": versions[0],
            "org.opencontainers.image.description": str(spec),
            "org.opencontainers.image.base.name": images.run,
            "hvd.mpi.abi": mpi or "none",
        },
    )
