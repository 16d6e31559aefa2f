"""The environment that ``spack ci generate`` reads: with a mirror, jobs, and the runner's tags."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List

import archspec.cpu
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.model import solution
from hvd.model.environment import EXTERNALS, HOROVOD, Environment

#: Spack's name for the mirror that jobs push to.
MIRROR = "buildcache-destination"


def directory(name: str) -> pathlib.Path:
    """Return the directory of what the jobs of an environment hand on to one another."""
    return paths.state() / "ci" / name


def concrete(name: str) -> pathlib.Path:
    """Return the environment with its solution, as ``spack ci generate`` leaves it for jobs."""
    return directory(name) / "concrete_environment"


def tags(environment: Environment) -> List[str]:
    """Return the tags of a runner: the site, the processor's family, ``gpu`` for CUDA or ROCm."""
    horovod = next(node for node in _nodes(environment.lockfile) if node["name"] == HOROVOD)
    family = archspec.cpu.TARGETS[solution.target(horovod)].family.name
    found = [environment.site, family]
    if any(horovod["parameters"].get(stack) is True for stack in ("cuda", "rocm")):
        found.append("gpu")
    return [tag for tag in found if tag]


def write(environment: Environment, cache: str, sign: bool) -> pathlib.Path:
    """Write a concretized environment for ``spack ci generate``, and return its directory.

    Jobs look in and push to the binary mirror at the URL ``cache``; with ``sign``, they sign.
    """
    place = directory(environment.name) / "environment"
    command = f"./hvd ci rebuild {environment.name}"
    include = []
    for entry in environment.includes:
        file = pathlib.Path(os.path.realpath(environment.directory / entry))
        # externals are in the solution, and their file need not be on the runner
        optional = file.name == EXTERNALS
        include.append({"path": os.path.relpath(file, place), "optional": optional})
    content: Dict[str, Any] = {
        "specs": environment.specs,
        "include": include,
        "mirrors": {MIRROR: {"url": cache, "signed": sign, "binary": True, "source": False}},
        # its jobs check for all that Spack could bootstrap; nothing is downloaded
        "bootstrap": {"enable": True, "sources:": []},
        "ci": {
            "target": "gitlab",
            # ./hvd ci smoke does it, once there is something new
            "rebuild-index": False,
            # a colon replaces what Spack's own jobs do, which is for a Spack in the runner
            "pipeline-gen": [
                {"any-job": {"tags": tags(environment)}},
                {"build-job": {"script:": [command]}},
            ],
        },
    }
    text = f"# {environment.name}, for spack ci; made by ./hvd ci generate\n"
    text += yaml.safe_dump({"spack": content}, sort_keys=False)
    write_atomically(place / "spack.yaml", text.encode())
    write_atomically(place / "spack.lock", environment.lockfile.read_bytes())
    return place


def missing_externals(name: str) -> List[str]:
    """Return a line for each external of the solution that is not on this machine.

    Raises:
        HvdError: there is no solution.
    """
    lock = concrete(name) / "spack.lock"
    try:
        nodes = _nodes(lock)
    except OSError as error:
        raise HvdError(
            f"{paths.shorten(lock)}: {error.strerror}",
            f"copy it from the job that generated the pipeline, or: ./hvd ci generate {name}",
        ) from error
    prefixes = [(node["name"], (node.get("external") or {}).get("path")) for node in nodes]
    return [
        f"{package} is not in {prefix}"
        for package, prefix in prefixes
        if prefix and not pathlib.Path(prefix).is_dir()
    ]


def _nodes(lock: pathlib.Path) -> List[Dict[str, Any]]:
    return list(json.loads(lock.read_text())["concrete_specs"].values())
