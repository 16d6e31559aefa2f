"""Builds of py-horovod by plain pip, by the pip engine, by Spack, and from a binary cache.

Plain pip has all patches but those that make builds faster, as the released source does not
compile with current versions of PyTorch.
"""

import os
import pathlib
import tempfile

import yaml

from benchmarks.page import seconds, spread
from hvd.build import engine_spack
from hvd.build.engine_pip import PipEngine
from hvd.build.engine_spack import SpackEngine
from hvd.core import lock, paths
from hvd.core.run import Run
from hvd.host import machine
from hvd.model import environment
from hvd.solve.location import Sources

BOTH = "py-horovod+mpi+gloo~cuda~rocm frameworks=pytorch,tensorflow"
FASTER = ("symbols.patch", "common-objects.patch", "torch-headers.patch")
WAYS = ("plain pip", "hvd pip", "spack install", "binary cache")


def build(run, pip, spack, scratch):
    """Build in each of `WAYS`; yield the seconds, and the prefix."""

    def call(*words):
        with run.step(f"spack {words[0]}") as task:
            words = ("-C", scratch, "-e", spack.environment.directory, *words)
            return spack.engine.spack.run(*words, log=task.log).output

    with run.step("plain pip install") as task:
        tree = pip.prepare(task.log, without=FASTER)
        yield seconds(pip.pip_install, tree, task.log), pip.engine.venv
    yield seconds(pip.build, run), pip.engine.venv
    spack.build(run)
    # the last step: the others uninstall, and list sources
    installed = run.stages[-1].steps[-1].seconds
    prefix = pathlib.Path(call("location", "-i", "py-horovod").splitlines()[-1])
    yield installed, prefix
    # unsigned: signatures take milliseconds, and would need a key
    mirrors = {"mirrors": {"cache": {"url": f"file://{scratch}/cache", "signed": False}}}
    pathlib.Path(scratch, "mirrors.yaml").write_text(yaml.safe_dump(mirrors))
    call("buildcache", "push", "--unsigned", "--only=package", "--update-index", "cache")
    call("uninstall", "--yes-to-all", "--force", "py-horovod")
    yield seconds(call, "install", "--cache-only", "--no-check-signature"), prefix


def measure(repeat):
    """Return rows and versions."""
    # Horovod's CMake uses ccache if it finds it; Spack hides it
    os.environ["CCACHE_DISABLE"] = "1"
    rows, versions, options = [], {}, {"jobs": machine.cores(), "fresh": True}
    default = environment.load(environment.DEFAULT)
    subjects = {default.name: default, "PyTorch and TensorFlow": environment.derive(default, BOTH)}
    for subject, chosen in subjects.items():
        run, times, sizes = Run(chosen.name, "bench"), {way: [] for way in WAYS}, {}
        with lock.exclusive(paths.state() / "lock"), run.stage("build"):
            with run.step("Spack and its packages, and dependencies") as task:
                located = engine_spack.locate(Sources(), task)
            engines = PipEngine(chosen, **options), SpackEngine(chosen, located, **options)
            pip, spack = (each.concretize(run, each.setup(run)) for each in engines)
            with run.step("spack install --only=dependencies") as task:
                words = ("-e", chosen.directory, "install", "--only=dependencies")
                located.run(*words, log=task.log)
            for _ in range(repeat):
                with tempfile.TemporaryDirectory() as scratch:
                    for way, (time, prefix) in zip(WAYS, build(run, pip, spack, scratch)):
                        (package,) = prefix.glob("lib/python3*/site-packages/horovod")
                        files = [each for each in package.rglob("*") if each.is_file()]
                        sizes[way] = sum(each.stat().st_size for each in files)
                        times[way].append(time)
        what = [{"subject": subject, "name": way} for way in WAYS]
        rows += [{**w, **spread(times[w["name"]]), "installed": sizes[w["name"]]} for w in what]
        versions.update(spack.versions())
    return rows, versions
