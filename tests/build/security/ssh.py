"""An ssh that runs the command on this machine, with an environment of its own as a login has.

``SECURITY_TEST_LOG`` gets the command line, and the keys that came with this process.
"""

import json
import os
import pathlib
import sys


def main(arguments) -> None:
    """Act as ssh."""
    names = ("_HOROVOD_RENDEZVOUS_KEY", "_HOROVOD_RUN_FUNC_KEY")
    keys = [os.environ[name] for name in names if name in os.environ]
    with open(os.environ["SECURITY_TEST_LOG"], "a") as log:
        log.write(json.dumps({"arguments": arguments, "keys": keys}) + "\n")
    while arguments[0].startswith("-"):
        arguments = arguments[2:]
    command = " ".join(arguments[1:])
    while command.startswith("-o "):
        command = command.split(maxsplit=2)[2]
    home = str(pathlib.Path.home())
    # PYTHONPATH stands for an installation
    names = ("PATH", "PYTHONPATH")
    environment = {"HOME": home, **{name: os.environ[name] for name in names}}
    os.execve("/bin/sh", ["sh", "-c", command], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
