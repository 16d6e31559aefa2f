"""Wall times of concretization: the environments, and Spack's own recipe."""

from __future__ import annotations

import dataclasses
import shutil
import time
from typing import Any, Dict, List, Mapping

import yaml

from hvd.bench.result import Benchmark, Row, timed
from hvd.build import engine_spack, solve_all
from hvd.build.pipeline import Options
from hvd.core import lock, paths, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.model import environment
from hvd.model.environment import HOROVOD
from hvd.solve.spack import UNCACHED, Spack, has_compiler

OURS = "hvd"
BUILTIN = "builtin"
#: The row of several environments at a time; its subject is their number.
TOGETHER = "together"
#: Time limit of a solve of builtin's recipe, in seconds.
_TIMEOUT = 600
#: Solved first, to fill Spack's caches.
_WARM_UP = "gmake"


def run(names: List[str], options: Options, repeat: int = 1) -> Benchmark:
    """Solve each environment and builtin's nearest spec ``repeat`` times.

    Then solve the first 1, 2, 4, ... environments at a time, as ``./hvd concretize`` does.

    Raises:
        StageFailed: Spack could not be set up, or an environment has no solution.
    """
    options = dataclasses.replace(options, fresh=True)
    subjects = [environment.load(name) for name in names]
    current = Run(solve_all.NAME, "bench", options.verbose)
    part = Benchmark("solves", [])
    # environments with the same nearest spec need it solved only once
    solved: Dict[str, Row] = {}
    with lock.exclusive(paths.state() / "lock"):
        with current.stage("setup"):
            with current.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            tasks = solve_all.set_up(subjects, spack, options, current)
            with current.step("Spack's caches") as task:
                if not (spack.scope / "packages.yaml").exists():
                    spack.find_tools(task.log, [])
                peer = _configure(spack)
                for variables in ({}, peer):
                    spack.run("spec", _WARM_UP, log=task.log, variables=variables)
        with current.stage("concretize"):
            for engine, found in tasks:
                name = engine.environment.name
                ours = Row(OURS, [], name, note="; ".join(engine.environment.specs))
                for _ in range(repeat):
                    begin = time.monotonic()
                    solution = engine.concretize(current, found)
                    ours.seconds.append(time.monotonic() - begin)
                    current.stages[-1].steps[-1].name = name
                spec = nearest(solution.specs)
                if spec not in solved:
                    solved[spec] = _builtin(spack, name, spec, peer, current, repeat)
                part.rows += [ours, dataclasses.replace(solved[spec], subject=name)]
    pair = spack.pair
    part.versions = {"Spack": pair.spack.version, "Spack packages": pair.packages.version}
    for count in sorted({*(2**n for n in range(10) if 2**n < len(names)), len(names)}):
        seconds = timed(solve_all.run, names[:count], options)
        part.rows.append(Row(TOGETHER, [seconds], str(count)))
    return part


def _builtin(
    spack: Spack, name: str, spec: str, peer: Mapping[str, str], run: Run, repeat: int
) -> Row:
    """Return a row for builtin's ``spec``, the nearest to ``name``'s; it may have no solution."""
    row = Row(BUILTIN, [], name, note=spec)
    for _ in range(repeat):
        with run.step(f"builtin, {name}") as task:
            arguments = (*UNCACHED, "spec", "--fresh", spec)
            options = {"log": task.log, "variables": peer, "timeout": _TIMEOUT}
            try:
                row.seconds.append(timed(spack.run, *arguments, **options))
            except CommandFailed as error:
                # both are results: a user of builtin's recipe gets them as well
                if error.status is None:
                    why = f"no solution within {_TIMEOUT} s"
                elif "failed to concretize" in task.log.read_text(errors="replace"):
                    why = "no solution"
                else:
                    raise
                task.skipped(why)
                row.note += f": {why}"
                break
    return row


def nearest(solution: Mapping[str, Any]) -> str:
    """Return the spec of Spack's own recipe that is nearest to ``solution``: specs by hash.

    It has no architecture: it is solved for this machine and its compilers.
    """
    node = next(each for each in solution.values() if each["name"] == HOROVOD)
    variants = node["parameters"]
    controllers = [name for name in ("mpi", "gloo") if variants[name]]
    # builtin has one variant for the operations, no DDL, and no RCCL in place of NCCL
    carriers = ("ccl",) if variants["rocm"] else ("nccl", "ccl")
    operations = [name for name in carriers if variants[name]] or controllers
    words = [
        f"builtin.{HOROVOD}@{node['version']}",
        f"frameworks={','.join(sorted(variants['frameworks']))}",
        f"controllers={','.join(controllers)}",
        f"tensor_ops={operations[0]}",
        *(f"{'+' if variants[stack] else '~'}{stack}" for stack in ("cuda", "rocm")),
    ]
    if variants["cuda"]:
        # builtin does not pass cuda_arch on to NCCL, which has no solution without it
        values = variants["cuda_arch"]
        words.append(f"cuda_arch={values if isinstance(values, str) else ','.join(values)}")
        words += [f"^nccl {words[-1]}"] if operations[0] == "nccl" else []
    return " ".join(words)


def _configure(spack: Spack) -> Dict[str, str]:
    """Configure Spack without this repository; return the environment variables that select it.

    It has Spack's defaults, this machine's compilers and build tools, and nothing installed.

    Raises:
        HvdError: the machine lacks a compiler that Spack's own recipe needs.
    """
    directory = spack.state / "builtin"
    scope = directory / "config"
    stamp.clear(directory)
    scope.mkdir(parents=True)
    builtin = spack.packages / "repos" / "spack_repo" / "builtin"
    files = {
        "config": {
            "install_tree": {"root": str(directory / "opt")},
            "misc_cache": str(directory / "cache"),
            # all versions of its recipe are
            "deprecated": True,
        },
        "repos": {"builtin": str(builtin)},
        "bootstrap": {"enable": False, "root": str(directory / "bootstrap")},
    }
    for section, content in files.items():
        text = yaml.safe_dump({section: content}, sort_keys=False)
        write_atomically(scope / f"{section}.yaml", text.encode())
    tools = spack.scope / "packages.yaml"
    if not has_compiler(yaml.safe_load(tools.read_text())["packages"], "fortran"):
        raise HvdError(
            "Spack's own recipe needs a Fortran compiler, and none is on PATH",
            "install one, such as gfortran, or measure the rest: --only builds --only allreduce",
        )
    shutil.copy(tools, scope)
    return {
        "SPACK_USER_CONFIG_PATH": str(scope),
        "SPACK_USER_CACHE_PATH": str(directory / "user"),
    }
