"""What is in a bundle: repositories at their commits, sources, and wheels."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import List, Mapping

from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.run import Task
from hvd.fetch import clone, mirror, source
from hvd.host import framework
from hvd.model import pins, recipe
from hvd.model.environment import HOROVOD, Environment
from hvd.solve import queries
from hvd.solve.spack import Spack

#: What ./hvd itself needs; what tests and notebooks need on top is not in a bundle.
REQUIREMENTS = paths.ROOT / "ci" / "requirements.txt"
#: What pip builds a source distribution with that says nothing else, PEP 517.
_BUILD_TOOLS = ("setuptools", "wheel")
#: Seconds for pip; PyTorch with CUDA is gigabytes.
_TIMEOUT = 3600


def commit() -> str:
    """The commit of this repository, all of it.

    Raises:
        HvdError: there is none, or files are not what it says.
    """
    found = clone.commit(paths.ROOT)
    if not found:
        raise HvdError(
            f"{paths.ROOT} is no git checkout, and a bundle has this repository at a commit",
            "bundle from a clone",
        )
    changed = subprocess.run(
        ["git", "-C", str(paths.ROOT), "status", "--porcelain"], capture_output=True, text=True
    ).stdout.splitlines()
    if changed:
        raise HvdError(
            f"files are not as commit {found[:12]} has them: "
            + ", ".join(line[3:] for line in changed[:3])
            + (", ..." if changed[3:] else ""),
            "commit them, or put them aside: git stash --include-untracked",
        )
    return found


def repositories(spack: Spack, directory: pathlib.Path, task: Task) -> None:
    """Put this repository, Spack and its packages into ``directory``, each at its commit alone.

    Raises:
        HvdError: a Spack that was named is at another commit than the pinned one.
    """
    pins_of = {"spack": spack.pair.spack, "packages": spack.pair.packages}
    places = {"hvd": paths.ROOT, "spack": spack.root, "packages": spack.packages}
    for name, place in places.items():
        pin = pins_of.get(name)
        if pin and clone.commit(place) != pin.commit:
            raise HvdError(
                f"{place} is not at {pin.commit[:12]} ({pin.version}), which a bundle has",
                f"leave --{name} out, or check that commit out",
            )
        task.say(name)
        bare = directory / f"{name}.git"
        # file://, as git clones a path with its whole history; no template: no sample hooks
        command = ["git", "clone", "--quiet", "--bare", "--depth=1", "--no-tags", "--template="]
        process.run([*command, place.as_uri(), bare], log=task.log, timeout=clone.TIMEOUT)
        config = ["git", "-C", bare, "config"]
        # an old git serves no commit but those that a branch is at
        process.run([*config, "uploadpack.allowAnySHA1InWant", "true"], log=task.log)
        process.run([*config, "--unset", "remote.origin.url"], log=task.log)
    task.say(", ".join(places))


def sources(spack: Spack, environment: Environment, directory: pathlib.Path, task: Task) -> None:
    """Put the sources of all that the solved ``environment`` builds into ``directory``.

    It is a source mirror of Spack's, and has Horovod's sdist for pip as well.
    """
    listing = spack.python(environment.directory, queries.SOURCES, task.log, "all")
    wanted = mirror.parse(listing)
    mirror.fill(
        wanted,
        spack.mirror,
        spack.addresses,
        task.log,
        on_source=lambda each: task.say(f"{each.name}@{each.version}"),
    )
    for each in wanted:
        if not each.url.startswith("file:"):
            _copy(spack.mirror / each.path, directory / each.path)
    if not environment.site:
        (version,) = {each.version for each in wanted if each.name == HOROVOD}
        sdist = source.sdist(recipe.load(HOROVOD), version)
        _copy(sdist, directory / "pip" / sdist.name)
    task.say(f"{len(wanted)} sources")


def wheels(environment: Environment, python: str, directory: pathlib.Path, task: Task) -> None:
    """Put the wheels of ./hvd, and of the frameworks where they are pinned, into ``directory``.

    Args:
        python: interpreter with the pinned frameworks; empty where the site has its own.

    Raises:
        HvdError: one cannot be had, or pip could not install from these alone.
    """
    pinned = pins.versions().framework
    # the other machine may have neither MPI nor CMake
    wanted = (
        [*framework.requirements(environment.frameworks, None), pinned.cmake] if python else []
    )
    wanted = list(dict.fromkeys(wanted))
    store = paths.STATE / "bundles" / "wheels"
    digest = stamp.of(REQUIREMENTS, wanted, sys.version, python)
    if not stamp.matches(store / "stamp", digest):
        stamp.clear(store)
        store.mkdir(parents=True)
        _download(sys.executable, ["--require-hashes", "-r", REQUIREMENTS], store, task)
        if wanted:
            _download(python, wanted, store, task)
        if any(not path.name.endswith(".whl") for path in store.iterdir()):
            _download(sys.executable, _BUILD_TOOLS, store, task)
        _prove(sys.executable, ["--require-hashes", "-r", REQUIREMENTS], store, task)
        if wanted:
            _prove(python, wanted, store, task)
        stamp.put(store / "stamp", digest)
    files = sorted(path for path in store.iterdir() if path.name != "stamp")
    for path in files:
        _copy(path, directory / path.name)
    size = sum(path.stat().st_size for path in files)
    task.say(f"{len(files)} wheels, {size / 2**20:.0f} MiB")


def _download(python: str, wanted: List[object], store: pathlib.Path, task: Task) -> None:
    command = [python, "-m", "pip", "download", "--progress-bar=off", "--dest", store, *wanted]
    process.run(command, log=task.log, env=process.clean_environment(), timeout=_TIMEOUT)


def _prove(python: str, wanted: List[object], store: pathlib.Path, task: Task) -> None:
    """Let pip plan the installation as on the other machine, from ``store`` alone."""
    command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", *wanted]
    process.run(
        command,
        log=task.log,
        env={**process.clean_environment(), **offline(store)},
        timeout=_TIMEOUT,
    )


def offline(store: pathlib.Path) -> Mapping[str, str]:
    """What lets pip know ``store`` and nothing else; as in ``install.sh``."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(store),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def _copy(path: pathlib.Path, destination: pathlib.Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, destination)
