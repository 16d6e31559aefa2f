"""Run by each rank, or by one process: pytest over one file of Horovod's tests.

Usage: program_tests.py FILE DIRECTORY, with DIRECTORY for the results, one file a rank.
"""

import os
import sys

import pytest

_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")

if __name__ == "__main__":
    file, directory = sys.argv[1:]
    rank = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", directory]
    sys.exit(pytest.main([*options, f"--junitxml={directory}/{rank}.xml", file]))
