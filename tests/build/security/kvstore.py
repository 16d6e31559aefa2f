"""Ask the real servers of horovod.run() and of Gloo's rendezvous; print the answers as JSON.

Argument: the package, horovod.run or horovod.runner.
"""

import base64
import importlib
import json
import os
import socket
import sys
import threading

import payload

KEY, OTHER_KEY = os.urandom(32), os.urandom(32)


def raw(port, text) -> int:
    """Send a request that no HTTP client would; the status."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        return int(connection.makefile("rb").readline().split()[1])


def main(package) -> None:
    """Ask everything."""
    server = importlib.import_module(f"{package}.http.http_server")
    client = importlib.import_module(f"{package}.http.http_client")
    secret = importlib.import_module(f"{package}.common.util.secret")
    store = server.KVStoreServer(0, KEY)
    port = store.start_server("127.0.0.1")
    value = b"value" if package == "horovod.run" else "value"

    def put(scope, name, key):
        client.put_data_into_kvstore("127.0.0.1", port, scope, name, value, key)

    def get(scope, name, key):
        got = client.read_data_from_kvstore("127.0.0.1", port, scope, name, key)
        return got if isinstance(got, str) else got.decode()

    def error(function, *arguments):
        try:
            return function(*arguments)
        except RuntimeError as failure:
            # the client wraps what urllib raised
            return type(failure.args[-1] if len(failure.args) > 1 else failure).__name__

    answers = {}
    put("runfunc", "func", KEY)
    answers["signed PUT, GET"] = get("runfunc", "func", KEY)
    answers["second function"] = error(put, "runfunc", "func", KEY)
    answers["GET without key"] = payload.request(port, "GET", "/runfunc/func")
    answers["GET with another key"] = error(get, "runfunc", "func", OTHER_KEY)
    answers["PUT with another key"] = error(put, "runfunc_result", "0", OTHER_KEY)
    # what a server of the attacker's own would give
    sealed = secret.seal(KEY, "runfunc_result", "0", base64.b64encode(b"value"))
    store.httpd.cache["runfunc_result"] = {"1": sealed}
    answers["signature of another place"] = error(get, "runfunc_result", "1", KEY)
    answers["HEAD"] = payload.request(port, "HEAD", "/setup.py")
    answers["PUT without length"] = raw(port, "PUT /a/b HTTP/1.0\n\n")
    answers["PUT with a negative length"] = raw(port, "PUT /a/b HTTP/1.0\nContent-Length: -1\n\n")
    answers["PUT with four parts"] = raw(port, "PUT /a/b/c HTTP/1.0\nContent-Length: 1\n\nx")

    rendezvous = server.RendezvousHTTPServer(("127.0.0.1", 0), server.RendezvousHandler, 0)
    threading.Thread(target=rendezvous.serve_forever, daemon=True).start()
    gloo = rendezvous.server_address[1]
    answers["rendezvous HEAD"] = payload.request(gloo, "HEAD", "/setup.py")
    answers["rendezvous PUT of 1 TB"] = raw(
        gloo, "PUT /global/0 HTTP/1.0\nContent-Length: 1000000000000\n\n"
    )
    answers["rendezvous PUT, GET"] = [
        payload.request(gloo, "PUT", "/global/0", b"address"),
        payload.request(gloo, "GET", "/global/0"),
    ]
    answers["worker without key"] = error(secret.take_run_func_key)
    answers["still there"] = get("runfunc", "func", KEY)
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
