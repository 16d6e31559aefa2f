"""``./hvd bundle``."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import shlex
import sys
from typing import Optional

from hvd.cli.common import SOURCES, EnvironmentArgument, SpecOption, chosen, option, takes
from hvd.core import console, lock, paths, process
from hvd.core.options import Options
from hvd.core.run import Run
from hvd.deliver import bundle as bundles
from hvd.engines import pipeline
from hvd.host import framework


@takes("python", *SOURCES, "verbose")
def bundle(
    options: Options,
    name: str = EnvironmentArgument,
    to: Optional[pathlib.Path] = option(
        "--to DIR|FILE.tar", "Output. \\[default: a directory below .hvd/bundles]", None
    ),
    spec: str = SpecOption,
) -> None:
    """Pack everything an environment needs, for a machine without a network.

    It contains this repository, Spack and its packages at their commits, sources, and wheels for
    this machine's processor family and Python. Its install.sh checks every file, sets everything
    up below a prefix, and runs Horovod on two ranks.
    """
    commit = bundles.commit()
    environment = chosen(name, spec)
    default = paths.state() / "bundles" / f"{environment.name}-{commit[:7]}"
    destination = (to or default).expanduser().absolute()
    with bundles.gathering(destination) as directory:
        options = dataclasses.replace(options, engine="spack")
        spack = pipeline.run(environment, options, last="concretize").engine.spack
        groups = [(sys.executable, bundles.hashed(paths.REQUIREMENTS))]
        # the pinned frameworks, unless the user or the site has others
        if not options.python and not environment.site:
            python = str(framework.place(environment.frameworks))
            groups.append((python, bundles.portable(environment.frameworks)))
        process.adopt_orphans()
        run = Run(environment.name, "bundle", options.verbose)
        with lock.exclusive(paths.state() / "lock"), run.stage("bundle"):
            with run.step("repositories") as task:
                bundles.repositories(spack, directory / "git", task)
            with run.step("sources") as task:
                bundles.sources(spack, environment, directory / "sources", task)
            with run.step("wheels") as task:
                bundles.wheels(groups, directory / "wheels", task)
            with run.step("checksums") as task:
                # two ranks may need a compute node of the site
                words = ["build" if environment.site else "smoke", name]
                words += ["--pair", spack.pair.name, *(["--spec", spec] if spec else [])]
                facts = {
                    "COMMAND": shlex.join(words),
                    "COMMIT": commit,
                    "PYTHON": ".".join(platform.python_version_tuple()[:2]),
                }
                task.say(f"{bundles.SUMS}: sha256 {bundles.seal(directory, facts)}")
    console.note(paths.shorten(destination))
    console.note("on the other machine: ./install.sh --prefix DIR")
