"""``horovodrun --check-build --verbose`` of a process that has imported the frameworks.

    python program_check_build.py /opt/horovod/bin/horovodrun torch

Horovod asks each of its questions in a new process, forked from ``horovodrun``, which imports
the framework for it: PyTorch six times (horovod/common/util.py, ``_check_extension_lambda``).
Forked from here it has the framework already.  Needs the standard library alone.
"""

import contextlib
import importlib
import os
import runpy
import sys

#: MXNet 1.9 crashes where TensorFlow was imported before it:
#: ``python -c 'import tensorflow, mxnet'``
_BY_ITSELF = "mxnet"


def main() -> None:
    script, *frameworks = sys.argv[1:]
    words = [script, "--check-build", "--verbose"]
    with open(script, "rb") as stream:
        source = stream.read()
    try:
        compile(source, script, "exec")
    except (SyntaxError, ValueError):  # a site's wrapper
        os.execv(script, words)
    for name in frameworks if _BY_ITSELF not in frameworks else ():
        with contextlib.suppress(Exception):  # horovodrun says what is wrong with it
            importlib.import_module(name)
    sys.argv, sys.path[0] = words, os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
