"""Look at a machine: the facts of an environment."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

import cattrs
import yaml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.doctor import driver, elf, probe
from hvd.doctor.model import MPI_LIBRARIES, Facts, Gpus, Launcher, Spack
from hvd.fetch import clone
from hvd.host import externals, mpi, programs
from hvd.model import environment
from hvd.model.built import Built, find
from hvd.smoke.launch import Target
from hvd.smoke.run import FRAMEWORKS, check_build_items
from hvd.solve import spack as spack_module

#: Seconds for what imports a framework.
_TIMEOUT = 300
#: https://docs.kernel.org/admin-guide/abi-stable-files.html#abi-file-stable-sysfs-class-infiniband
_ADAPTERS = pathlib.Path("/sys/class/infiniband")


def facts(name: str, engine: str, shell: Mapping[str, str]) -> Facts:
    """Return everything there is to know here about the environment ``name``.

    Args:
        shell: the environment that the command was called in.

    Raises:
        HvdError: there is no such environment.
    """
    environment.load(name)
    try:
        built = find(name, engine)
        plan = activation.plan(built)
    except HvdError as error:
        return Facts(name, not_built=error.message, remedy=error.remedy, shell=shell)
    own = plan.applied({k: v for k, v in shell.items() if k != "LD_LIBRARY_PATH"})
    after = plan.applied(shell)
    python = shutil.which("python", path=own["PATH"]) or "python"
    said = _probe(built, python, after)
    extensions = _extensions(said["extensions"])
    launcher = _launcher(own)
    watched = [*extensions, python, *([launcher.real] if launcher else [])]
    watched += [
        path for path in said["loaded"] if os.path.basename(path).startswith(MPI_LIBRARIES)
    ]
    return Facts(
        name,
        built,
        changed=tuple(built.changed()),
        shell=shell,
        fabric=_fabric(built, shell),
        spack=_spack(built),
        imports=said["imports"],
        check_build=_check_build(built, python, after),
        extensions=extensions,
        loaded=tuple(said["loaded"]),
        mpi=" ".join(mpi.of_library(said["mpi"]) or ()),
        launcher=launcher,
        shell_launcher=_launcher(shell),
        compiler=_compiler(own),
        transports=_transports(own),
        adapters=tuple(sorted(path.name for path in _ADAPTERS.glob("*"))),
        gpus=_gpus(shell),
        shadowed=elf.moved(watched, own, after) if shell.get("LD_LIBRARY_PATH") else {},
        **_framework(built, python, after),
    )


def _probe(built: Built, python: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """Return what a process that imports Horovod has; see ``probe.py``."""
    names = [FRAMEWORKS.get(name, name) for name in sorted(built.expectation.frameworks)]
    command = [python, probe.__file__, *(f"horovod.{name}" for name in names)]
    problem = ""
    try:
        done = subprocess.run(
            command, env=dict(variables), capture_output=True, text=True, timeout=_TIMEOUT
        )
        problem = done.stderr.strip().rpartition("\n")[2]
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        imports = dict.fromkeys(names, problem or str(error))
        return {"imports": imports, "loaded": [], "extensions": [], "mpi": ""}
    said["imports"] = {name: said["imports"][f"horovod.{name}"] for name in names}
    return said


def _extensions(files: List[str]) -> Dict[str, FrozenSet[str]]:
    found = {}
    for file in files:
        try:
            found[file] = elf.needs(file)
        except (OSError, ValueError):
            continue  # the import says what is wrong with it
    return found


def _launcher(variables: Mapping[str, str]) -> Optional[Launcher]:
    path = shutil.which("mpirun", path=variables.get("PATH", os.defpath))
    if not path:
        return None
    return Launcher(path, os.path.realpath(path), " ".join(mpi.of_launcher(path) or ()))


def _compiler(variables: Mapping[str, str]) -> Optional[Tuple[str, bool]]:
    """Return what ``mpicxx`` calls, and if that is on PATH."""
    wrapper = shutil.which("mpicxx", path=variables["PATH"])
    words = programs.output(wrapper, "-show", env=variables).split() if wrapper else []
    if not words:
        return None
    return words[0], shutil.which(words[0], path=variables["PATH"]) is not None


def _transports(variables: Mapping[str, str]) -> FrozenSet[str]:
    """Return what Open MPI can choose between; nothing for other MPIs."""
    program = shutil.which("ompi_info", path=variables["PATH"])
    said = programs.output(program, "--parsable", env=variables) if program else ""
    found = re.findall(r"^mca:(pml|mtl):(\w+):version", said, re.MULTILINE)
    return frozenset(" ".join(each) for each in found)


def _check_build(built: Built, python: str, variables: Mapping[str, str]) -> Tuple[str, ...]:
    process.adopt_orphans()
    target = Target(pathlib.Path(python), variables)
    out = paths.state() / "logs" / built.name / "doctor"
    return tuple(check_build_items(target, built.expectation, out, _TIMEOUT).failures)


def _framework(built: Built, python: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """Return CUDA version and architectures of the framework, for builds with CUDA."""
    if built.gpu != "cuda":
        return {}
    try:
        asked = externals.ask(python, variables)["frameworks"].values()
    except (HvdError, subprocess.SubprocessError):
        return {}
    frameworks = [each for each in asked if "architectures" in each]
    if not frameworks:
        return {}
    cuda = frameworks[0]["cuda"]
    return {
        "toolkit": None if cuda == "unknown" else cuda,
        "architectures": tuple(frameworks[0]["architectures"]),
    }


def _fabric(built: Built, shell: Mapping[str, str]) -> Dict[str, str]:
    """Return the site's variables for as many nodes as the job has, or two."""
    machine, _ = activation.place(built)
    if not machine:
        return {}
    nodes = shell.get("SLURM_JOB_NUM_NODES", "")
    return machine.variables(built.case, int(nodes) if nodes.isdigit() else 2)


def _spack(built: Built) -> Optional[Spack]:
    if built.engine != "spack":
        return None
    root = pathlib.Path(built.variables.get("SPACK_ROOT", ""))
    try:
        pair = (paths.state() / f"{built.environment}.pair").read_text().strip()
    except OSError:
        pair = ""
    commits = {"spack": clone.commit(root)}
    try:
        text = (paths.state() / pair / "config" / "repos.yaml").read_text()
        builtin = pathlib.Path(yaml.safe_load(text)["repos"]["builtin"])
        # .../repos/spack_repo/builtin
        commits["packages"] = clone.commit(builtin.parents[2])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass
    return Spack(pair, str(root), spack_module.version(root), commits)


def _gpus(shell: Mapping[str, str]) -> Gpus:
    said = programs.output(sys.executable, driver.__file__, env=shell)
    if not said:
        return Gpus(reason="the CUDA driver does not answer")
    return cattrs.structure(json.loads(said), Gpus)
