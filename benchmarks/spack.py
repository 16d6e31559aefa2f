"""Builds and concretization: by Spack, and by what there is beside it."""

import json
import os
import pathlib
import tempfile

import yaml

from benchmarks.page import file, seconds, spread
from hvd.core import lock, paths, process, stamp
from hvd.core.run import Run
from hvd.engines import engine_spack, solve_all
from hvd.engines.engine_pip import PipEngine
from hvd.engines.engine_spack import SpackEngine
from hvd.engines.pipeline import Options
from hvd.host import machine
from hvd.model import environment
from hvd.solve.spack import BUILTIN, UNCACHED

BOTH = "py-horovod+mpi+gloo~cuda~rocm frameworks=pytorch,tensorflow"
FASTER = ("symbols.patch", "common-objects.patch", "torch-headers.patch")
WAYS = ("plain pip", "hvd pip", "spack install", "binary cache")


def size(prefix):
    (package,) = prefix.glob("lib/python3*/site-packages/horovod")
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


def take_back(patches, tree, log):
    """Take back the patches that make builds faster; without the others, nothing compiles."""
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    for each in [patch for patch in reversed(patches) if patch.name in FASTER]:
        # with little context, which later patches have changed
        process.run(["git", "apply", "-R", "-C1", each], log=log, cwd=tree, env=environ)


def build_each(run, pip, spack, scratch):
    """Build in each of `WAYS`; yield the seconds, and the size of what is installed."""

    def call(*words):
        with run.step(f"spack {words[0]}") as task:
            words = ("-C", scratch, "-e", spack.environment.directory, *words)
            return spack.engine.spack.run(*words, log=task.log).output

    stamp.clear(pip.engine.directory)
    with run.step("plain pip install") as task:
        tree = pip.prepare(task.log)
        take_back(pip.recipe.patches(pip.spec), tree, task.log)
        yield seconds(pip.pip_install, tree, task.log), size(pip.engine.venv)
    yield seconds(pip.build, run), size(pip.engine.venv)
    spack.build(run)
    # its last step: the others uninstall, and list sources
    time = run.stages[-1].steps[-1].seconds
    prefix = pathlib.Path(call("location", "-i", "py-horovod").splitlines()[-1])
    yield time, size(prefix)
    # unsigned: signatures take milliseconds, and would need a key
    mirrors = {"mirrors": {"cache": {"url": f"file://{scratch}/cache", "signed": False}}}
    pathlib.Path(scratch, "mirrors.yaml").write_text(yaml.safe_dump(mirrors))
    call("buildcache", "push", "--unsigned", "--only=package", "--update-index", "cache")
    call("uninstall", "--yes-to-all", "--force", "py-horovod")
    yield seconds(call, "install", "--cache-only", "--no-check-signature"), size(prefix)


def builds(repeat):
    """Return the rows and the versions of builds of py-horovod."""
    # Horovod's CMake uses ccache if it finds it; Spack hides it
    os.environ["CCACHE_DISABLE"] = "1"
    rows, versions, options = [], {}, {"jobs": machine.cores(), "fresh": True}
    default = environment.load(environment.DEFAULT)
    subjects = {default.name: default, "PyTorch and TensorFlow": environment.derive(default, BOTH)}
    for subject, chosen in subjects.items():
        run, found = Run(chosen.name, "bench"), []
        with lock.exclusive(paths.state() / "lock"), run.stage("build"):
            with run.step("Spack and its packages") as task:
                located = engine_spack.locate(Options().sources, task)
            engines = PipEngine(chosen, **options), SpackEngine(chosen, located, **options)
            pip, spack = (each.concretize(run, each.setup(run)) for each in engines)
            with run.step("spack install --only=dependencies") as task:
                located.run("-e", chosen.directory, "install", "--only=dependencies", log=task.log)
            for _ in range(repeat):
                with tempfile.TemporaryDirectory() as scratch:
                    found.append(list(build_each(run, pip, spack, scratch)))
        for way, each in zip(WAYS, zip(*found)):
            times, sizes = zip(*each)
            rows.append({"subject": subject, "name": way, **spread(times), "installed": sizes[-1]})
        versions.update(spack.versions())
    return rows, versions


def solves(repeat):
    """Return the rows and the versions of concretizations; the specs are in the results."""
    builtin = [row for row in json.loads(file("solves").read_text())["rows"] if "spec" in row]
    subjects = [environment.load(row["subject"]) for row in builtin]
    rows, run, options = [], Run("all", "bench"), Options(jobs=machine.cores(), fresh=True)
    with lock.exclusive(paths.state() / "lock"), tempfile.TemporaryDirectory() as scratch:
        with run.stage("setup"):
            with run.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            tasks = solve_all.set_up(subjects, spack, options, run)
            with run.step("Spack's own recipe, and its caches") as task:
                # as it comes, with this machine's compilers, Fortran's too, and build tools
                for name, content in {
                    "config": {"install_tree": {"root": f"{scratch}/opt"}, "deprecated": True},
                    "repos": {"builtin": str(spack.packages / BUILTIN)},
                }.items():
                    text = yaml.safe_dump({name: content})
                    pathlib.Path(scratch, f"{name}.yaml").write_text(text)
                names = ("SPACK_USER_CONFIG_PATH", "SPACK_USER_CACHE_PATH")
                own = {"log": task.log, "timeout": 600, "variables": dict.fromkeys(names, scratch)}
                spack.run("external", "find", "gcc", "llvm", "cmake", "gmake", **own)
                for options_of in (own, {"log": task.log}):
                    spack.run("spec", "gmake", **options_of)
        with run.stage("concretize"):
            for row, (engine, found) in zip(builtin, tasks):
                times = [seconds(engine.concretize, run, found) for _ in range(repeat)]
                rows.append({"subject": row["subject"], "name": "hvd", **spread(times)})
                words = (*UNCACHED, "spec", "--fresh", row["spec"])
                with run.step(f"builtin's recipe for {row['subject']}"):
                    times = [seconds(spack.run, *words, **own) for _ in range(repeat)]
                rows.append({**row, **spread(times)})
    names = [row["subject"] for row in builtin]
    for count in sorted({1, 2, 4, 8, len(names)}):
        time = seconds(solve_all.run, names[:count], options)
        rows.append({"subject": count, "name": "together", **spread([time])})
    versions = {"Spack": spack.pair.spack, "Spack packages": spack.pair.packages}
    return rows, {name: each.version for name, each in versions.items()}
