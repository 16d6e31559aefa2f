"""The surroundings of a cell: virtual environments, and a compiler that comes first on PATH."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Dict, List, Optional, Sequence

from packaging.utils import canonicalize_name

from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.host import framework, mpi
from hvd.host.mpi import Mpi
from hvd.matrix.definition import PIP, SYSTEM, Cell
from hvd.matrix.here import Here

#: Variables of the caller's shell that would change a build.
_FOREIGN = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "OPAL_PREFIX", "I_MPI_ROOT")
#: Seconds for pip; a framework may be gigabytes.
_TIMEOUT = 3600
#: Bytes that must be free before a cell: a framework, its download, and a build.
ROOM = 8 * 2**30


def state() -> pathlib.Path:
    """Return the directory of everything of the matrix but its results."""
    return paths.state() / "matrix"


def make_room() -> None:
    """Remove virtual environments, the least recently used first, until a cell has room.

    Raises:
        HvdError: there is too little even without them.
    """
    venvs = sorted((state() / "venvs").glob("*"), key=lambda path: path.stat().st_mtime)
    while (free := shutil.disk_usage(state()).free) < ROOM:
        if not venvs:
            raise HvdError(
                f"only {free / 2**30:.1f} GiB are free in {paths.shorten(state())}; a cell may "
                f"need {ROOM / 2**30:.0f} GiB",
                "make room, or set HVD_STATE to a directory with more; then go on with --resume",
            )
        stamp.clear(venvs.pop(0))


def venv(
    name: str,
    python: str,
    requirements: Sequence[str],
    log: pathlib.Path,
    pip: str = "",
    system: bool = False,
) -> pathlib.Path:
    """Return a virtual environment, which cells with the same ``requirements`` share.

    Args:
        name: the beginning of its directory's name.
        pip: the requirement of the pip to install with; the newest if empty.
        system: include the packages of ``python`` itself, such as pip without requirements.

    Raises:
        CommandFailed: pip could not install the requirements.
    """
    options = ["--system-site-packages"] if system else []
    if system and not requirements:
        options.append("--without-pip")
    digest = stamp.of(list(requirements), python, framework.version(python), pip, options)
    directory = state() / "venvs" / f"{name}-{digest[:8]}"
    if stamp.matches(directory / "stamp", digest):
        os.utime(directory)  # see make_room()
        return directory
    stamp.clear(directory)
    process.run([python, "-m", "venv", *options, directory], log=log, timeout=_TIMEOUT)

    def run_pip(*arguments: str) -> str:
        command = [directory / "bin" / "python", "-m", "pip", *arguments]
        environment = process.clean_environment()
        return process.run(command, log=log, env=environment, timeout=_TIMEOUT).output

    for wanted in ([pip or "pip"], requirements) if requirements else ():
        run_pip("install", "--upgrade", "--progress-bar=off", *wanted)
    # there may be warnings before and after the list
    lines = run_pip("list", "--format=json").splitlines()
    (directory / "freeze.json").write_text(next(line for line in lines if line.startswith("[")))
    stamp.put(directory / "stamp", digest)
    return directory


def distributions(directory: pathlib.Path) -> Dict[str, str]:
    """Return the version of each distribution in a virtual environment, by normalized name."""
    listed = json.loads((directory / "freeze.json").read_text())
    return {canonicalize_name(each["name"]): each["version"] for each in listed}


def environment(
    here: Here, cell: Cell, first: List[pathlib.Path], library: Optional[Mpi], state: pathlib.Path
) -> Dict[str, str]:
    """Return the whole environment of the cell's ``./hvd run``.

    The directories ``first`` come first on PATH; ``library`` is the MPI among them, and ``state``
    the directory of the cell's builds.
    """
    compilers = []
    # Spack finds compilers by their own names, and calls ccache itself
    if cell.engine == PIP and here.ccache:
        # ccache looks for a compiler of the same name in what follows on PATH
        compilers.append(_links("ccache", here.ccache, here.ccache))
    if cell.engine == PIP and cell.compiler != SYSTEM:
        cxx = here.compilers[cell.compiler]
        cc = str(pathlib.Path(cxx).with_name(cell.compiler))
        compilers.append(_links(cell.compiler, cxx, cc))
    variables = process.clean_environment(mpi.search_path([*first, *compilers]))
    for name in _FOREIGN:
        variables.pop(name, None)
    variables.update(PYTHONPATH=str(paths.SOURCE), HVD_STATE=str(state))
    if library:
        # mpi4py's wheel would look beside its own interpreter; libmpi.so without a number may be
        # a text for the linker
        found = sorted(library.prefix.glob("lib/libmpi.so.*"), key=lambda path: len(path.name))
        if found:
            variables["MPI4PY_LIBMPI"] = str(found[0])
    if here.ccache:
        variables.update(
            # hvd.solve.spack tells Spack of ccache if this is set
            CCACHE_DIR=str(paths.cache() / "ccache"),
            # each cell compiles the same sources in another directory
            CCACHE_BASEDIR=str(state),
            CCACHE_NOHASHDIR="1",
            CCACHE_SLOPPINESS="time_macros,include_file_mtime,include_file_ctime",
        )
    return variables


def _links(name: str, cxx: str, cc: str) -> pathlib.Path:
    """Return a directory with links by which builds find ccache or a compiler."""
    directory = state() / "compilers" / name
    directory.mkdir(parents=True, exist_ok=True)
    for program, target in {"c++": cxx, "g++": cxx, "cc": cc, "gcc": cc}.items():
        link = directory / program
        if not (link.is_symlink() and os.readlink(link) == target):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return directory
