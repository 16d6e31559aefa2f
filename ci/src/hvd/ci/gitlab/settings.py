"""The environment that ``spack ci generate`` reads: one of ours, with a mirror and jobs.

The environments themselves say nothing of pipelines; what these need follows from the site and
from the solution.
"""

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
from hvd.model.environment import EXTERNALS, HOROVOD, Environment

#: Spack's name for the mirror that jobs push to.
MIRROR = "buildcache-destination"


def directory(name: str) -> pathlib.Path:
    """Where everything is of environment ``name`` that jobs hand on to one another."""
    return paths.STATE / "ci" / name


def concrete(name: str) -> pathlib.Path:
    """The environment with its solution, as ``spack ci generate`` leaves it for the jobs."""
    return directory(name) / "concrete_environment"


def tags(environment: Environment) -> List[str]:
    """What a runner has to be tagged with that builds ``environment``.

    The site, where it is one's; the processor's family; ``gpu`` for a build with CUDA or ROCm.
    """
    nodes = json.loads(environment.lock.read_text())["concrete_specs"].values()
    horovod = next(node for node in nodes if node["name"] == HOROVOD)
    target = horovod["arch"]["target"]
    name = target["name"] if isinstance(target, dict) else target
    family = archspec.cpu.TARGETS[name].family.name
    gpu = any(horovod["parameters"].get(stack) is True for stack in ("cuda", "rocm"))
    return [*filter(None, [environment.site]), family, *["gpu"] * gpu]


def write(environment: Environment, cache: str, sign: bool) -> pathlib.Path:
    """Write the environment for ``spack ci generate``, with the solution of ``environment``.

    Args:
        environment: one that is solved.
        cache: URL of the binary mirror that jobs look in and push to.
        sign: whether what they push is signed.

    Returns:
        Its directory.
    """
    place = directory(environment.name) / "environment"
    jobs = tags(environment)
    command = f"./hvd ci rebuild {environment.name}"
    content: Dict[str, Any] = {
        "specs": environment.specs,
        "include": [_include(entry, environment, place) for entry in environment.includes],
        "mirrors": {
            MIRROR: {"url": cache, "signed": sign, "binary": True, "source": False},
        },
        # its jobs ask whether all is there that Spack could bootstrap; nothing is downloaded
        "bootstrap": {"enable": True, "sources:": []},
        "ci": {
            "target": "gitlab",
            # ./hvd ci smoke does it, once there is something new
            "rebuild-index": False,
            # a colon replaces what Spack's own jobs do, which is for a Spack in the runner
            "pipeline-gen": [
                {"any-job": {"tags": jobs}},
                {"build-job": {"script:": [command]}},
            ],
        },
    }
    text = f"# {environment.name}, for spack ci; made by ./hvd ci generate\n"
    text += yaml.safe_dump({"spack": content}, sort_keys=False)
    write_atomically(place / "spack.yaml", text.encode())
    write_atomically(place / "spack.lock", environment.lock.read_bytes())
    return place


def _include(entry: str, environment: Environment, place: pathlib.Path) -> Dict[str, Any]:
    """An include of ``environment`` as it is written elsewhere in the checkout."""
    target = pathlib.Path(os.path.realpath(environment.directory / entry))
    # externals are in the solution, and their file need not be on the runner
    return {"path": os.path.relpath(target, place), "optional": target.name == EXTERNALS}


def missing_externals(name: str) -> List[str]:
    """What the solution takes from the machine, and this one does not have; a line for each.

    Raises:
        HvdError: there is no solution.
    """
    lock = concrete(name) / "spack.lock"
    try:
        nodes = json.loads(lock.read_text())["concrete_specs"].values()
    except OSError as error:
        raise HvdError(
            f"{paths.shorten(lock)}: {error.strerror}",
            f"take it over from the job that generated the pipeline, or: ./hvd ci generate {name}",
        ) from error
    prefixes = [(node["name"], (node.get("external") or {}).get("path")) for node in nodes]
    return [
        f"{package} is not in {prefix}"
        for package, prefix in prefixes
        if prefix and not pathlib.Path(prefix).is_dir()
    ]
