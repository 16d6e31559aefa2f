"""Ask a rendezvous that has a key, from Python and from C++; print the answers as JSON.

Argument: a program made of ``store.cc`` and the tree's HTTPStore.
"""

import json
import os
import subprocess
import sys

import payload
from horovod.runner.common.util import secret
from horovod.runner.http import http_client
from horovod.runner.http.http_server import RendezvousServer

KEY, OTHER_KEY = os.urandom(32), os.urandom(32)
PLACE = "/global/0"


def main(store) -> None:
    """Ask everything."""
    server = RendezvousServer()
    server.secret_key = KEY
    port = server.start(address="127.0.0.1")
    # as for a job of one rank
    server._httpd.scope_size.update(dict.fromkeys(("global", "local_a"), 1))
    answers = {}

    def ask(method, body=None, key=KEY, signed=None):
        digest = secret.rendezvous_digest(key, *(signed or (method, PLACE, body or b"")))
        return payload.request(port, method, PLACE, body, **{http_client.DIGEST_HEADER: digest})

    def by_store(scope, key):
        environment = {**os.environ, "_HOROVOD_RENDEZVOUS_KEY": key}
        done = subprocess.run(
            [store, str(port), scope], env=environment, stdout=subprocess.PIPE, timeout=60
        )
        return done.stdout.decode().strip()

    answers["signed"] = [ask("PUT", b"address"), ask("GET")]
    answers["unsigned"] = [
        payload.request(port, method, PLACE, b"false" if method == "PUT" else None)
        for method in ("PUT", "GET", "DELETE")
    ]
    answers["another key"] = [
        ask("PUT", b"false", OTHER_KEY),
        ask("GET", key=OTHER_KEY),
        ask("DELETE", key=OTHER_KEY),
    ]
    answers["signature of another request"] = [
        ask("PUT", b"false", signed=("PUT", PLACE, b"address")),
        ask("GET", signed=("GET", "/global/1", b"")),
        ask("DELETE", signed=("GET", PLACE, b"")),
    ]
    answers["kept"] = server._httpd.cache["global"]["0"].decode()
    os.environ[secret.HOROVOD_RENDEZVOUS_KEY] = KEY.hex()
    http_client.put_bytes_into_rendezvous("127.0.0.1", port, "hosts", "a:0", b"worker")
    answers["worker's"] = server._httpd.cache["hosts"]["a:0"].decode()
    answers["C++"] = by_store("local_a", KEY.hex())
    answers["C++ has deleted"] = "0" not in server._httpd.cache.get("local_a", {})
    answers["C++ without key"] = by_store("local_b", "")
    answers["C++ with another key"] = by_store("local_b", OTHER_KEY.hex())
    answers["C++ left"] = sorted(name for name, kept in server._httpd.cache.items() if kept)
    answers["signed DELETE"] = ask("DELETE")

    unkeyed = RendezvousServer()  # as Ray and Spark start it
    port = unkeyed.start(address="127.0.0.1")
    unkeyed._httpd.scope_size["local_a"] = 1
    answers["server without key"] = [
        payload.request(port, "PUT", PLACE, b"address"),
        by_store("local_a", ""),
        by_store("local_a", KEY.hex()),
    ]
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
