"""Concretization of each environment, and of the nearest spec of Spack's own recipe.

Those specs are in results/solves.json: add a line there for a new environment.
"""

import json
import pathlib
import tempfile

import yaml

from benchmarks.page import file, seconds, spread
from hvd.build import engine_spack, solve_all
from hvd.build.pipeline import Options
from hvd.core import lock, paths
from hvd.core.run import Run
from hvd.host import machine
from hvd.model import environment
from hvd.solve.spack import BUILTIN, UNCACHED


def as_it_comes(spack, scratch, log):
    """Configure Spack without this repository; return the variables that select this."""
    own = {"SPACK_USER_CONFIG_PATH": scratch, "SPACK_USER_CACHE_PATH": f"{scratch}/cache"}
    # all versions of its recipe are deprecated
    config = {"install_tree": {"root": f"{scratch}/opt"}, "deprecated": True}
    sections = {"config": config, "repos": {"builtin": str(spack.packages / BUILTIN)}}
    for name, content in sections.items():
        text = yaml.safe_dump({name: content})
        pathlib.Path(scratch, f"{name}.yaml").write_text(text)
    # the compilers, of which the recipe needs Fortran too, and the build tools
    spack.run("external", "find", "gcc", "llvm", "cmake", "gmake", log=log, variables=own)
    return own


def measure(repeat):
    """Return rows and versions."""
    builtin = [row for row in json.loads(file("solves").read_text())["rows"] if "spec" in row]
    subjects = [environment.load(row["subject"]) for row in builtin]
    run, options = Run("all", "bench"), Options(jobs=machine.cores(), fresh=True)
    rows = []
    with lock.exclusive(paths.state() / "lock"), tempfile.TemporaryDirectory() as scratch:
        with run.stage("setup"):
            with run.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            tasks = solve_all.set_up(subjects, spack, options, run)
            with run.step("Spack's own recipe, and its caches") as task:
                own = as_it_comes(spack, scratch, task.log)
                for variables in ({}, own):
                    spack.run("spec", "gmake", log=task.log, variables=variables)
        with run.stage("concretize"):
            for row, (engine, found) in zip(builtin, tasks):
                times = [seconds(engine.concretize, run, found) for _ in range(repeat)]
                rows.append({"subject": row["subject"], "name": "hvd", **spread(times)})
                words = (*UNCACHED, "spec", "--fresh", row["spec"])
                with run.step(f"builtin's recipe for {row['subject']}") as task:
                    where = {"log": task.log, "variables": own, "timeout": 600}
                    times = [seconds(spack.run, *words, **where) for _ in range(repeat)]
                rows.append({**row, **spread(times)})
    names = [row["subject"] for row in builtin]
    for count in sorted({1, 2, 4, 8, len(names)}):
        time = seconds(solve_all.run, names[:count], options)
        rows.append({"subject": count, "name": "together", **spread([time])})
    pair = spack.pair
    return rows, {"Spack": pair.spack.version, "Spack packages": pair.packages.version}
