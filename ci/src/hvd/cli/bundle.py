"""``./hvd bundle``."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
from typing import Optional

from hvd.build import pipeline
from hvd.build.engine_spack import SpackEngine
from hvd.build.pipeline import Options
from hvd.cache import cache, keyring
from hvd.cache.cache import Cache
from hvd.cli.common import SOURCES, EnvironmentArgument, SpecOption, chosen, flag, option, takes
from hvd.core import console, lock, paths, process
from hvd.core.run import Run
from hvd.deliver import bundle as bundles
from hvd.host import framework
from hvd.model import built


@takes("python", *SOURCES, "verbose")
def bundle(
    options: Options,
    name: str = EnvironmentArgument,
    to: Optional[pathlib.Path] = option(
        "--to DIR|FILE.tar|FILE.tar.gz",
        "Output. \\[default: a directory below .hvd/bundles]",
        None,
    ),
    with_cache: bool = flag("--with-cache", "Add a binary cache of what Spack built for it here."),
    key: str = option(
        "--key KEY",
        "Sign the cache with this key of the keyring; see ./hvd cache key.",
        envvar="HVD_CACHE_KEY",
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
    destination = (to or default).expanduser()
    signer = ""
    if with_cache:
        signer = cache.fingerprint(Cache(""), key)
        built.find_current(environment.name, "spack")
    with bundles.gathering(destination.absolute()) as directory:
        options = dataclasses.replace(options, engine="spack")
        engine = pipeline.run(environment, options, last="concretize").engine
        # the pinned frameworks, unless the user or the site has others
        pinned = not options.python and not environment.site
        interpreter = str(framework.place(environment.frameworks)) if pinned else ""
        process.adopt_orphans()
        run = Run(environment.name, "bundle", options.verbose)
        with lock.exclusive(paths.state() / "lock"), run.stage("bundle"):
            _gather(run, engine, directory, interpreter, signer)
            with run.step("checksums") as task:
                facts = {
                    "ENVIRONMENT": name,
                    "SPEC": spec,
                    "PAIR": engine.spack.pair.name,
                    "COMMIT": commit,
                    "MACHINE": platform.machine(),
                    "PYTHON": ".".join(platform.python_version_tuple()[:2]),
                    "SITE": environment.site,
                }
                digest = bundles.seal(directory, facts)
                task.say(f"{bundles.SUMS}: sha256 {digest}")
    console.note(f"{paths.shorten(destination)}")
    console.note("on the other machine: ./install.sh --prefix DIR")


def _gather(
    run: Run, engine: SpackEngine, directory: pathlib.Path, python: str, signer: str
) -> None:
    """Fill ``directory``.

    Args:
        python: interpreter with the pinned frameworks; empty to leave them out.
        signer: fingerprint of the key for a binary cache; empty for no cache.
    """
    environment = engine.environment
    with run.step("repositories") as task:
        bundles.repositories(engine.spack, directory / "git", task)
    with run.step("sources") as task:
        bundles.sources(engine.spack, environment, directory / "sources", task)
    with run.step("wheels") as task:
        bundles.wheels(environment, python, directory / "wheels", task)
    if signer:
        with run.step("binary cache") as task:
            target = Cache((directory / "cache").as_uri())
            cache.push(engine.spack, environment, target, signer, task)
            keyring.export(signer, directory / "cache" / "key.asc")
            task.say(f"signed with {signer}")
