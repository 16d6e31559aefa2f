"""Everything that an environment needs in one directory or archive, for machines without network.

A bundle has repositories at their commits, sources, wheels, and a checksum for each file; its
``install.sh`` sets it up.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import shlex
import shutil
import sys
import tarfile
import tempfile
from typing import Iterable, Iterator, List, Mapping, Sequence, Tuple

from hvd.core import paths, process
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
INSTALLER = pathlib.Path(__file__).with_name("install.sh")
#: The default build backend of a source distribution, PEP 517.
_BUILD_TOOLS = ("setuptools", "wheel")
#: Seconds for pip; PyTorch with CUDA is gigabytes.
_TIMEOUT = 3600


def commit() -> str:
    """The commit of this repository; refused if files differ from it."""
    found = clone.commit(paths.ROOT)
    if not found:
        raise HvdError(f"{paths.ROOT} is not a git checkout", "run this in a clone")
    changed = clone.git("status", "--porcelain").stdout.splitlines()
    if changed:
        raise HvdError(
            f"files differ from commit {found[:12]}: "
            + ", ".join(line[3:] for line in changed[:3]),
            "commit them, or put them aside: git stash --include-untracked",
        )
    return found


@contextlib.contextmanager
def gathering(destination: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory for the content of a bundle, which is at ``destination`` when the block ends.

    The bundle is an archive if ``destination`` ends in ``.tar``.
    """
    if destination.exists():
        raise HvdError(f"{destination} exists", "remove it, or name another")
    name = destination.name
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=destination.parent) as scratch:
            made = pathlib.Path(scratch, name.removesuffix(".tar"))
            made.mkdir()
            yield made
            if made.name != name:
                with tarfile.open(pathlib.Path(scratch, name), "w") as archive:
                    archive.add(made, made.name)
            os.rename(pathlib.Path(scratch, name), destination)
    except OSError as error:
        raise HvdError(
            f"cannot write {destination}: {error.strerror or error}", "choose another with --to"
        ) from error


def repositories(spack: Spack, directory: pathlib.Path, task: Step) -> None:
    """Clone this repository, Spack and its packages into ``directory``, without their history."""
    places = {
        "spack": (spack.root, spack.pair.spack),
        "packages": (spack.packages, spack.pair.packages),
    }
    repository(paths.ROOT, directory / "hvd.git", task)
    for name, (place, pin) in places.items():
        if clone.commit(place) != pin.commit:
            raise HvdError(
                f"{place} is not at commit {pin.commit[:12]} ({pin.version})",
                f"leave --{name} out, or check that commit out",
            )
        repository(place, directory / f"{name}.git", task)
    task.say(", ".join(["hvd", *places]))


def repository(place: pathlib.Path, bare: pathlib.Path, task: Step) -> None:
    """Clone the repository at ``place`` into ``bare``, without its history."""
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
        horovod(next(each.version for each in wanted if each.name == HOROVOD), directory)
    task.say(f"{len(wanted)} sources")


def horovod(version: str, directory: pathlib.Path) -> None:
    """Put the sdist of Horovod ``version`` below ``directory``, for the pip engine."""
    sdist = source.sdist(recipe.load(HOROVOD), version)
    _copy(sdist, directory / "pip" / sdist.name)


def _copy(path: pathlib.Path, destination: pathlib.Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, destination)


def hashed(*files: pathlib.Path) -> List[str]:
    """Return pip's arguments for files of requirements with checksums."""
    return ["--require-hashes", *(word for file in files for word in ("-r", str(file)))]


def portable(frameworks: Iterable[str]) -> List[str]:
    """Return the requirements of the pinned ``frameworks`` for another machine.

    They are with an MPI and CMake, which it may not have.
    """
    wanted = framework.requirements(frameworks, None)
    return list(dict.fromkeys([*wanted, pinned().framework.cmake]))


def wheels(
    groups: Sequence[Tuple[str, Sequence[str]]], directory: pathlib.Path, task: Step
) -> None:
    """Download wheels into ``directory``, and check that pip can install from it alone.

    Args:
        groups: interpreters, and pip's arguments for what each needs.
    """

    def pip(python: str, *words: object, **settings: str) -> None:
        variables = {**process.clean_environment(), **settings}
        process.run([python, "-m", "pip", *words], log=task.log, env=variables, timeout=_TIMEOUT)

    download = ("download", "--progress-bar=off", "--dest", directory)
    for interpreter, requirements in groups:
        pip(interpreter, *download, *requirements)
    if any(path.suffix != ".whl" for path in directory.iterdir()):
        pip(sys.executable, *download, *_BUILD_TOOLS)
    # as in install.sh
    offline = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(directory),
    }
    for interpreter, requirements in groups:
        pip(interpreter, "install", "--dry-run", "--ignore-installed", *requirements, **offline)
    files = list(directory.iterdir())
    size = sum(path.stat().st_size for path in files)
    task.say(f"{len(files)} wheels, {size / 2**20:.0f} MiB")


def seal(directory: pathlib.Path, facts: Mapping[str, str]) -> str:
    """Add ``install.sh``, its facts, and the checksums of all files.

    Args:
        facts: shell variables: PYTHON, ``major.minor``; COMMAND, the words of ./hvd that end an
            installation; others are for people.

    Returns:
        The checksum of the checksums, for people to compare.
    """
    facts = {**facts, "MACHINE": platform.machine()}
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())
    write_atomically(directory / "bundle.env", text.encode())
    shutil.copyfile(INSTALLER, directory / INSTALLER.name)
    (directory / INSTALLER.name).chmod(0o755)
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    lines = [
        f"{python_index.digest(path)}  {name}\n"
        for name, path in sorted(files.items())
        if path.is_file()
    ]
    write_atomically(directory / SUMS, "".join(lines).encode())
    return python_index.digest(directory / SUMS)
