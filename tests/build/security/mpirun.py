"""An mpirun that starts ranks on this machine with no more environment than it was told.

``SECURITY_TEST_LOG`` gets the command line and the key.  With ``SECURITY_TEST_MARKER`` it attacks
the KV store, whose address is on the command line for anyone to see, before and after the ranks.
"""

import base64
import json
import os
import subprocess
import sys

import payload


def main(arguments) -> int:
    """Act as mpirun."""
    if arguments == ["--version"]:
        print("mpirun (Open MPI) 4.1.4")
        return 0
    keys = [os.environ["_HOROVOD_RUN_FUNC_KEY"]] if "_HOROVOD_RUN_FUNC_KEY" in os.environ else []
    with open(os.environ["SECURITY_TEST_LOG"], "a") as log:
        log.write(json.dumps({"arguments": arguments, "keys": keys}) + "\n")
    size = int(arguments[arguments.index("-np") + 1])
    command = arguments[arguments.index(sys.executable) :]
    names = [name for option, name in zip(arguments, arguments[1:]) if option == "-x"]
    environment = {name: os.environ[name] for name in names if name in os.environ}
    attack(command[-1], "/runfunc/func", "func")
    status = 0
    for rank in range(size):
        rank_of = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}
        status = subprocess.run(command, env={**environment, **rank_of}).returncode or status
    attack(command[-1], "/runfunc_result/0", "result")
    # the ranks of an attacked job fail; the launcher has to go on to read their results
    return 0 if os.environ.get("SECURITY_TEST_MARKER") else status


def attack(port, path, name) -> None:
    """Put a pickle to ``path``."""
    marker = os.environ.get("SECURITY_TEST_MARKER")
    if marker:
        body = base64.b64encode(payload.pickled(f"{marker}-{name}"))
        print("ATTACK", path, payload.request(port, "PUT", path, body), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
