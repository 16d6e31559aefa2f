"""Look at a machine: the facts of an environment."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

import yaml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.deliver.activation import parts
from hvd.deliver.activation import plan as activation
from hvd.doctor import driver, elf, probe
from hvd.doctor.checks_libraries import MPI_LIBRARIES
from hvd.doctor.model import Extension, Facts, Gpus, Launcher, Spack, Version
from hvd.fetch import clone
from hvd.host import externals, mpi
from hvd.model import environment
from hvd.model.built import Built, find
from hvd.smoke.launch import Target
from hvd.smoke.run import FRAMEWORKS, check_build_items
from hvd.solve import spack as spack_module

_TIMEOUT = 300


def facts(name: str, engine: str, shell: Mapping[str, str]) -> Facts:
    """Everything there is to know here about the environment ``name``.

    Args:
        shell: the environment that the command was called in.

    Raises:
        HvdError: there is no such environment.
    """
    environment.load(name)
    try:
        built = find(name, engine)
        plan = activation.make(built)
    except HvdError as error:
        return Facts(name, not_built=error.message, remedy=error.remedy, shell=shell)
    own = plan.applied({k: v for k, v in shell.items() if k != "LD_LIBRARY_PATH"})
    after = plan.applied(shell)
    said = _probe(built, after)
    extensions = _extensions(said["extensions"])
    launcher = _launcher(own)
    python = shutil.which("python", path=own["PATH"]) or "python"
    watched = [each.path for each in extensions]
    watched += [path for path in said["loaded"] if _is_mpi(path)] + [python]
    watched += [launcher.real] if launcher else []
    return Facts(
        name,
        built,
        changed=tuple(built.changed()),
        plan=plan,
        shell=shell,
        fabric=_fabric(built, shell),
        spack=_spack(built),
        imports=said["imports"],
        check_build=_check_build(built, after),
        extensions=extensions,
        loaded=tuple(said["loaded"]),
        mpi=_version(mpi.of_library(said["mpi"])),
        launcher=launcher,
        shell_launcher=_launcher(shell),
        compiler=_compiler(own),
        gpus=_gpus(shell),
        shadowed=elf.moved(watched, own, after) if shell.get("LD_LIBRARY_PATH") else {},
        **_framework(built, python, after),
    )


def _probe(built: Built, variables: Mapping[str, str]) -> Dict[str, Any]:
    """What a process that imports Horovod in the environment has; see ``probe.py``."""
    modules = [f"horovod.{name}" for name in _modules(built)]
    python = shutil.which("python", path=variables["PATH"]) or "python"
    nothing = {"loaded": [], "extensions": [], "mpi": ""}
    try:
        done = subprocess.run(
            [python, str(pathlib.Path(probe.__file__)), *modules],
            env=dict(variables),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
        said = json.loads(done.stdout.splitlines()[-1])
        return {**said, "imports": {k.partition(".")[2]: v for k, v in said["imports"].items()}}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        lines = done.stderr.split("\n") if isinstance(error, (ValueError, IndexError)) else []
        why = next((line for line in reversed(lines) if line.strip()), str(error))
        return {**nothing, "imports": {name: why for name in _modules(built)}}


def _modules(built: Built) -> List[str]:
    """Names in ``horovod.`` of the frameworks that it was built for."""
    chosen = sorted(built.expectation.frameworks)
    return [FRAMEWORKS.get(name, name) for name in chosen]


def _extensions(files: List[str]) -> Tuple[Extension, ...]:
    found = []
    for file in files:
        try:
            found.append(elf.read(file))
        except (OSError, ValueError):
            continue  # the import says what is wrong with it
    return tuple(found)


def _is_mpi(path: str) -> bool:
    return os.path.basename(path).startswith(MPI_LIBRARIES)


def _version(kind: Optional[Tuple[str, str]]) -> Optional[Version]:
    return Version(*kind) if kind else None


def _launcher(variables: Mapping[str, str]) -> Optional[Launcher]:
    path = shutil.which("mpirun", path=variables.get("PATH", os.defpath))
    if not path:
        return None
    try:
        kind = mpi.of_launcher(path)
    except (OSError, subprocess.SubprocessError):
        kind = None
    return Launcher(path, os.path.realpath(path), _version(kind))


def _compiler(variables: Mapping[str, str]) -> Optional[Tuple[str, bool]]:
    """What ``mpicxx`` calls, and whether that is there."""
    wrapper = shutil.which("mpicxx", path=variables["PATH"])
    if not wrapper:
        return None
    try:
        done = subprocess.run(
            [wrapper, "-show"], env=dict(variables), capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    if done.returncode or not words:
        return None
    return words[0], shutil.which(words[0], path=variables["PATH"]) is not None


def _check_build(built: Built, variables: Mapping[str, str]) -> Tuple[str, ...]:
    process.adopt_orphans()
    python = shutil.which("python", path=variables["PATH"]) or "python"
    target = Target(pathlib.Path(python), variables)
    out = paths.LOGS / built.name / "doctor"
    return tuple(check_build_items(target, built.expectation, out, _TIMEOUT).failures)


def _framework(built: Built, python: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """CUDA of the framework and the architectures it was built for, where CUDA matters."""
    if built.gpu != "cuda":
        return {}
    try:
        found = externals.ask(python, variables)["frameworks"]
    except (HvdError, subprocess.SubprocessError):
        return {}
    for framework in found.values():
        return {
            "toolkit": framework["cuda"] if framework["cuda"] != "unknown" else None,
            "architectures": tuple(framework["architectures"]),
        }
    return {}


def _fabric(built: Built, shell: Mapping[str, str]) -> Dict[str, str]:
    """What the site asks for on as many nodes as the job has, or two."""
    machine, _ = parts.place(built) or (None, None)
    if not machine:
        return {}
    nodes = shell.get("SLURM_JOB_NUM_NODES", "")
    return machine.variables(built.case, int(nodes) if nodes.isdigit() else 2)


def _spack(built: Built) -> Optional[Spack]:
    """The Spack that built it, as it is now."""
    if built.engine != "spack":
        return None
    root = built.variables.get("SPACK_ROOT", "")
    try:
        pair = (paths.STATE / f"{built.environment}.pair").read_text().strip()
    except OSError:
        pair = ""
    commits = {"spack": clone.commit(pathlib.Path(root))}
    try:
        text = (paths.STATE / pair / "config" / "repos.yaml").read_text()
        builtin = pathlib.Path(yaml.safe_load(text)["repos"]["builtin"])
        # .../repos/spack_repo/builtin
        commits["packages"] = clone.commit(builtin.parents[2])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass
    return Spack(pair, root, spack_module.version(pathlib.Path(root)), commits)


def _gpus(shell: Mapping[str, str]) -> Gpus:
    command = [sys.executable, str(pathlib.Path(driver.__file__))]
    try:
        done = subprocess.run(
            command, env=dict(shell), capture_output=True, text=True, timeout=60, check=True
        )
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Gpus(reason=f"the CUDA driver cannot be asked: {error}")
    version = said.get("driver")
    return Gpus(
        driver=(version[0], version[1]) if version else None,
        reason=said.get("reason", ""),
        capabilities=tuple(said.get("capabilities", ())),
    )
