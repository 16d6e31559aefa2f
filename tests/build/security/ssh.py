"""An ssh that runs the command on this machine, with an environment of its own as a login has.

``SECURITY_TEST_LOG`` gets the command line, and the keys that came with this process: in its
environment, or on standard input where the command reads them from there.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading


def main(arguments) -> None:
    """Act as ssh."""
    names = ("_HOROVOD_RENDEZVOUS_KEY", "_HOROVOD_RUN_FUNC_KEY")
    keys = [os.environ[name] for name in names if name in os.environ]
    read = b""
    for name in names if not keys else ():
        if f"read -r {name}" in " ".join(arguments):
            read += sys.stdin.buffer.readline()
    keys = keys or read.decode().split()
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
    shell = subprocess.Popen(
        ["sh", "-c", command], env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    shell.stdin.write(read)
    shell.stdin.flush()
    pass_on = threading.Thread(target=forward, args=(sys.stdin.buffer, shell.stdin), daemon=True)
    pass_on.start()
    status = shell.wait()
    os._exit(status if status >= 0 else 128 - status)


def forward(source, target) -> None:
    """Copy to the end."""
    with contextlib.suppress(BrokenPipeError), target:
        shutil.copyfileobj(source, target)


if __name__ == "__main__":
    main(sys.argv[1:])
