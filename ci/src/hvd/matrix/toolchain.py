"""The surroundings of a cell: its compiler, CMake and MPI come first on PATH."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Optional

from hvd.core import paths, process
from hvd.host import mpi
from hvd.host.mpi import Mpi
from hvd.matrix.definition import SYSTEM
from hvd.matrix.here import CXX, Here

#: Of the caller's shell, and would change a build behind the matrix' back.
_FOREIGN = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "OPAL_PREFIX", "I_MPI_ROOT")
#: The programs that builds call a compiler by.
_COMPILERS = {"c++": "c++", "g++": "c++", "cc": "cc", "gcc": "cc"}


def environment(
    here: Here,
    compiler: str,
    first: List[pathlib.Path],
    library: Optional[Mpi],
    state: pathlib.Path,
    by_spack: bool = False,
) -> Dict[str, str]:
    """The whole environment of a cell's ``./hvd run``.

    Args:
        here: the machine.
        compiler: the axis' value.
        first: directories of programs that come first on PATH.
        library: the MPI among them.
        state: the directory of the cell's builds.
        by_spack: Spack finds compilers by their own names, and calls ccache itself.
    """
    path = mpi.search_path([*first, *(() if by_spack else _compilers(here, compiler))])
    variables = process.clean_environment(path)
    for name in _FOREIGN:
        variables.pop(name, None)
    variables["PYTHONPATH"] = str(paths.SOURCE)
    variables["HVD_STATE"] = str(state)
    if library:
        # mpi4py's wheel looks beside its own interpreter otherwise; without a number it may be a
        # text for the linker
        found = sorted(library.prefix.glob("lib/libmpi.so.*"), key=lambda path: len(path.name))
        if found:
            variables["MPI4PY_LIBMPI"] = str(found[0])
    if here.ccache:
        # Spack is told so by it: see hvd.solve.spack.Spack.configure
        variables["CCACHE_DIR"] = str(paths.cache() / "ccache")
        # the same sources are compiled in another directory by each cell
        variables["CCACHE_BASEDIR"] = str(state)
        variables["CCACHE_NOHASHDIR"] = "1"
        variables["CCACHE_SLOPPINESS"] = "time_macros,include_file_mtime,include_file_ctime"
    return variables


def _compilers(here: Here, compiler: str) -> List[pathlib.Path]:
    """Directories in which the chosen compiler has the names that builds call it by."""
    directories = []
    base = paths.STATE / "matrix" / "compilers"
    if compiler != SYSTEM:
        cxx = here.compilers[compiler]
        kind = compiler.partition("-")[0]
        cc = kind.join(cxx.rsplit(CXX[kind], 1))
        real = {"c++": cxx, "cc": cc}
        links = {name: real[kind] for name, kind in _COMPILERS.items()}
        directories.append(_links(base / compiler, links))
    if here.ccache:
        # by such a name, ccache looks for the compiler in what follows on PATH
        links = dict.fromkeys(_COMPILERS, here.ccache)
        directories.insert(0, _links(base / "ccache", links))
    return directories


def _links(directory: pathlib.Path, links: Dict[str, str]) -> pathlib.Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, target in links.items():
        link = directory / name
        if not (link.is_symlink() and os.readlink(link) == target):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return directory
