"""A rehearsal for another processor: in a Debian root of it, whose programs QEMU emulates."""

from __future__ import annotations

import pathlib
from typing import List

import archspec.cpu

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import debian, emulation, machine
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.rehearse import cluster, module_tools, result
from hvd.rehearse.declared import Declared
from hvd.rehearse.result import Result
from hvd.rehearse.stand_ins import Lacking
from hvd.solve import site_check


def family(environment: Environment) -> str:
    """Return the family of the environment's processor."""
    wanted = site_check.architecture(environment.specs[0])["target"]
    return str(archspec.cpu.TARGETS[wanted].family)


def is_needed(environment: Environment) -> bool:
    """Return whether the environment is for another family than that of this machine or root."""
    return family(environment) != str(archspec.cpu.TARGETS[machine.processor()].family)


def root(environment: Environment, found: List[Declared], log: pathlib.Path) -> pathlib.Path:
    """Return a root with the environment's Python, made if need be.

    Raises:
        Lacking: ``ci/versions.yaml`` has none.
        HvdError: it cannot be made.
    """
    python = next(each.version for each in found if each.package == "python")
    series = ".".join(python.split(".")[:2])
    for suite in pinned().debian:
        architecture = emulation.of(suite)
        if architecture and architecture.machine == family(environment):
            place = debian.root(suite, log)
            if (place / "usr" / "bin" / f"python{series}").exists():
                return place
    raise Lacking(
        f"no root for {family(environment)} in ci/versions.yaml has Python {series}",
        f"rehearse it on a machine of {family(environment)}",
    )


def run(environment: Environment, place: pathlib.Path) -> Result:
    """Rehearse the environment in the root at ``place``.

    Raises:
        HvdError: it was interrupted.
    """
    file = debian.state(place) / "rehearsals" / environment.name / "result.json"
    file.unlink(missing_ok=True)
    # natively run there as well, so that they are of this machine's processor
    module_tools.install("lmod")
    cluster.unpack()
    outside = [str(each) for each in paths.environments() if paths.ROOT not in each.parents]
    debian.run(place, [str(paths.ROOT / "hvd"), "rehearse", environment.name], outside)
    if not file.exists():
        raise HvdError("the rehearsal was interrupted", log=file.with_name("log"))
    return result.load(file)
