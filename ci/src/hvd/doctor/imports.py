"""Import Horovod and print what came with it as JSON; the environment's Python runs this.

It needs the standard library of Python 3.6 and nothing else.

Usage: probe.py MODULE...
"""

import ctypes
import glob
import importlib
import json
import os
import sys

MPI_VERSION_STRING = 8192  # at least MPI_MAX_LIBRARY_VERSION_STRING of every MPI


def imported(names):
    """Module to the error of its import, empty if it had none."""
    found = {}
    for name in names:
        try:
            importlib.import_module(name)
            found[name] = ""
        except Exception as error:  # a broken installation may raise anything
            found[name] = f"{type(error).__name__}: {error}"
    return found


def loaded():
    """Paths of the libraries in this process."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].rstrip("\n") for line in maps if "/" in line}
    return sorted(path for path in paths if ".so" in os.path.basename(path))


def extensions():
    """Horovod's compiled libraries."""
    try:
        import horovod
    except Exception:
        return []
    directory = os.path.dirname(os.path.abspath(horovod.__file__))
    return sorted(glob.glob(os.path.join(directory, "**", "*.so"), recursive=True))


def mpi_version(paths):
    """Return the version text of the MPI library among ``paths``; empty for none."""
    for path in paths:
        if not os.path.basename(path).startswith("libmpi"):
            continue
        ask = getattr(ctypes.CDLL(path), "MPI_Get_library_version", None)
        if ask is not None:
            # allowed before MPI_Init, from MPI 3.0 on
            text, length = ctypes.create_string_buffer(MPI_VERSION_STRING), ctypes.c_int()
            ask(text, ctypes.byref(length))
            return text.value.decode(errors="replace")
    return ""


def main():
    imports = imported(sys.argv[1:])
    paths = loaded()
    report = dict(imports=imports, loaded=paths, extensions=extensions(), mpi=mpi_version(paths))
    # after whatever Horovod and its framework print as they are imported
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
