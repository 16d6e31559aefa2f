"""Import Horovod and print what came with it as JSON; the environment's Python runs this.

It needs the standard library of Python 3.6 and nothing else.  Its arguments are modules.
"""

import ctypes
import importlib
import json
import os
import sys

MPI_VERSION_STRING = 8192  # at least MPI_MAX_LIBRARY_VERSION_STRING of every MPI


def imported(name):
    """Error of the import of a module, empty if it had none."""
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken installation may raise anything
        return f"{type(error).__name__}: {error}"
    return ""


def mpi_version(paths):
    """Version text of the MPI library among ``paths``; empty for none."""
    for path in paths:
        ask = None
        if os.path.basename(path).startswith("libmpi"):
            ask = getattr(ctypes.CDLL(path), "MPI_Get_library_version", None)
        if ask is not None:
            # allowed before MPI_Init, from MPI 3.0 on
            text, length = ctypes.create_string_buffer(MPI_VERSION_STRING), ctypes.c_int()
            ask(text, ctypes.byref(length))
            return text.value.decode(errors="replace")
    return ""


def main():
    errors = {name: imported(name) for name in sys.argv[1:]}
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].rstrip("\n") for line in maps if "/" in line}
    loaded = sorted(path for path in paths if ".so" in os.path.basename(path))
    # after whatever Horovod and its framework print as they are imported
    print("\n" + json.dumps({"errors": errors, "loaded": loaded, "mpi": mpi_version(loaded)}))


if __name__ == "__main__":
    main()
