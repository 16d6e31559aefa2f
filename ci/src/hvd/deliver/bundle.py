"""Everything that an environment needs in one directory or archive, for machines without network.

A bundle has repositories at their commits, sources, wheels, and a checksum for each file; its
``install.sh`` sets it up.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from typing import Iterable, Iterator, List, Mapping, Sequence, Tuple

from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.steps import Step
from hvd.fetch import clone, python_index, source
from hvd.host import framework
from hvd.model import recipe
from hvd.model.environment import HOROVOD, Environment
from hvd.model.versions import pinned
from hvd.solve.spack import Spack

#: The checksums of all other files, for sha256sum(1).
SUMS = "SHA256SUMS"
#: Facts about the bundle, as shell variables for install.sh.
FACTS = "bundle.env"
INSTALLER = pathlib.Path(__file__).with_name("install.sh")
#: Modes of tarfile by the end of an archive's name.
_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}
#: The default build backend of a source distribution, PEP 517.
_BUILD_TOOLS = ("setuptools", "wheel")
#: Seconds for pip; PyTorch with CUDA is gigabytes.
_TIMEOUT = 3600


def commit() -> str:
    """The commit of this repository.

    Raises:
        HvdError: this is no git checkout, or files differ from the commit.
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
        files = [line[3:] for line in changed[:3]] + ["..."] * (len(changed) > 3)
        raise HvdError(
            f"files differ from commit {found[:12]}: {', '.join(files)}",
            "commit them, or put them aside: git stash --include-untracked",
        )
    return found


@contextlib.contextmanager
def gathering(destination: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory for the content of a bundle, which is at ``destination`` when the block ends.

    Raises:
        HvdError: ``destination`` exists, or cannot be written.
    """
    if destination.exists():
        raise HvdError(f"{destination} is there already", "remove it, or name another")
    name = destination.name
    end = next((end for end in _MODES if name.endswith(end)), "")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=destination.parent) as scratch:
            made = pathlib.Path(scratch, name[: len(name) - len(end)])
            made.mkdir()
            yield made
            if end:
                directory, made = made, pathlib.Path(scratch, name)
                # most of it is wheels, which are compressed already
                options = {"compresslevel": 1} if end != ".tar" else {}
                with tarfile.open(made, _MODES[end], **options) as archive:
                    archive.add(directory, directory.name)
            os.rename(made, destination)
    except OSError as error:
        raise HvdError(
            f"cannot write {destination}: {error.strerror or error}",
            "check the space left on its disk, or name another place with --to",
        ) from error


def repositories(spack: Spack, directory: pathlib.Path, task: Step) -> None:
    """Clone this repository, Spack and its packages into ``directory``, without their history.

    Raises:
        HvdError: a Spack that the user named is not at the pinned commit.
    """
    places = {
        "spack": (spack.root, spack.pair.spack),
        "packages": (spack.packages, spack.pair.packages),
    }
    for name, (place, pin) in places.items():
        if clone.commit(place) != pin.commit:
            raise HvdError(
                f"{place} is not at commit {pin.commit[:12]} ({pin.version}), which a bundle has",
                f"leave --{name} out, or check that commit out",
            )
    repository(paths.ROOT, directory / "hvd.git", task)
    for name, (place, _) in places.items():
        repository(place, directory / f"{name}.git", task)
    task.say(", ".join(["hvd", *places]))


def repository(place: pathlib.Path, bare: pathlib.Path, task: Step) -> None:
    """Clone the repository at ``place`` into ``bare``, without its history."""
    task.say(bare.stem)
    # file://, as git clones a path with its whole history; no template: no sample hooks
    command = ["git", "clone", "--quiet", "--bare", "--depth=1", "--no-tags", "--template="]
    process.run([*command, place.as_uri(), bare], log=task.log, timeout=clone.TIMEOUT)
    config = ["git", "-C", bare, "config"]
    # an old git serves only commits that a branch is at
    process.run([*config, "uploadpack.allowAnySHA1InWant", "true"], log=task.log)
    process.run([*config, "--unset", "remote.origin.url"], log=task.log)


def sources(spack: Spack, environment: Environment, directory: pathlib.Path, task: Step) -> None:
    """Make ``directory`` a Spack mirror with the sources of the solved ``environment``.

    It also gets Horovod's sdist for pip.
    """
    wanted = spack.fetch_sources(environment.directory, task.log, task.say, "all")
    for each in wanted:
        if not each.url.startswith("file:"):
            _copy(spack.mirror / each.path, directory / each.path)
    if not environment.site:
        (version,) = {each.version for each in wanted if each.name == HOROVOD}
        horovod(version, directory)
    task.say(f"{len(wanted)} sources")


def horovod(version: str, directory: pathlib.Path) -> None:
    """Put the sdist of Horovod ``version`` below ``directory``, for the pip engine."""
    sdist = source.sdist(recipe.load(HOROVOD), version)
    _copy(sdist, directory / "pip" / sdist.name)


def wheels(environment: Environment, python: str, directory: pathlib.Path, task: Step) -> None:
    """Put the wheels of ./hvd and of the pinned frameworks into ``directory``.

    Args:
        python: interpreter with the pinned frameworks; empty to leave them out.

    Raises:
        HvdError: one is not available, or pip cannot install from them alone.
    """
    groups = [(sys.executable, hashed(paths.REQUIREMENTS, paths.REQUIREMENTS_PLOTS))]
    if python:
        groups.append((python, portable(environment.frameworks)))
    collect(groups, "wheels", directory, task)


def hashed(*files: pathlib.Path) -> List[str]:
    """Return pip's arguments for files of requirements with checksums."""
    return ["--require-hashes", *(word for file in files for word in ("-r", str(file)))]


def portable(frameworks: Iterable[str]) -> List[str]:
    """Return the requirements of the pinned ``frameworks`` for another machine.

    They are with an MPI and CMake, which it may not have.
    """
    wanted = framework.requirements(frameworks, None)
    return list(dict.fromkeys([*wanted, pinned().framework.cmake]))


def collect(
    groups: Sequence[Tuple[str, Sequence[str]]], name: str, directory: pathlib.Path, task: Step
) -> None:
    """Put wheels into ``directory``.

    Args:
        groups: interpreters, and pip's arguments for what each needs.
        name: of the directory that keeps them here, for the next bundle.

    Raises:
        HvdError: one is not available, or pip cannot install from them alone.
    """
    store = paths.state() / "bundles" / name
    files = (paths.REQUIREMENTS, paths.REQUIREMENTS_PLOTS)
    digest = stamp.of(*files, [list(map(str, each)) for each in groups], sys.version)
    if not stamp.matches(store / "stamp", digest):
        stamp.clear(store)
        store.mkdir(parents=True)
        download = ("download", "--progress-bar=off", f"--dest={store}")
        for interpreter, requirements in groups:
            _pip(interpreter, [*download, *requirements], task)
        if any(path.suffix != ".whl" for path in store.iterdir()):
            _pip(sys.executable, [*download, *_BUILD_TOOLS], task)
        for interpreter, requirements in groups:
            # plan the installation as on the other machine, from the store alone
            options = ["install", "--dry-run", "--ignore-installed"]
            _pip(interpreter, [*options, *requirements], task, **offline(store))
        stamp.put(store / "stamp", digest)
    files = sorted(path for path in store.iterdir() if path.name != "stamp")
    for path in files:
        _copy(path, directory / path.name)
    size = sum(path.stat().st_size for path in files)
    task.say(f"{len(files)} wheels, {size / 2**20:.0f} MiB")


def offline(store: pathlib.Path) -> Mapping[str, str]:
    """The settings that keep pip to the directory ``store``; as in ``install.sh``."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(store),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def seal(directory: pathlib.Path, facts: Mapping[str, str]) -> str:
    """Add ``install.sh``, the facts that it needs, and the checksums of all files.

    Returns:
        The checksum of the checksums, for people to compare.
    """
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())
    write_atomically(directory / FACTS, text.encode())
    shutil.copyfile(INSTALLER, directory / INSTALLER.name).chmod(0o755)
    return python_index.digest(write_sums(directory))


def write_sums(directory: pathlib.Path) -> pathlib.Path:
    """Write the checksums of all files below ``directory``, and return their file."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    lines = [f"{python_index.digest(path)}  {path.relative_to(directory)}\n" for path in files]
    write_atomically(directory / SUMS, "".join(lines).encode())
    return directory / SUMS


def _pip(python: str, words: Sequence[str], task: Step, **settings: str) -> None:
    variables = {**process.clean_environment(), **settings}
    process.run([python, "-m", "pip", *words], log=task.log, env=variables, timeout=_TIMEOUT)


def _copy(path: pathlib.Path, destination: pathlib.Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, destination)
