"""Run a function with horovod.run() out of a source tree, where nothing is compiled.

Arguments: the launcher's module, and options of horovod.run() as JSON.  The last line that is
printed is JSON: the results or the error, the addresses that servers listened on, and whether
Gloo's rendezvous has a key.
"""

import importlib
import json
import sys

import cloudpickle
import psutil


def add(one, other):
    """What the ranks run."""
    import os

    rank = os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    return [int(rank), one + other, "_HOROVOD_RUN_FUNC_KEY" in os.environ]


def main(name, options) -> None:
    """Run :func:`add`, and print what came of it."""
    launcher = importlib.import_module(name)
    # what the compiled part would say
    launcher.gloo_built = launcher.mpi_built = lambda verbose=False: True
    package = name.rpartition(".")[0]
    server = importlib.import_module(f"{package}.http.http_server")
    listening, keyed = [], []
    record(server.KVStoreHTTPServer, listening, [])
    record(server.RendezvousHTTPServer, listening, keyed)
    # ranks cannot import this file
    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    loopback = next(
        nic
        for nic, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )
    # of the launcher in 0.19, of the package later
    run = getattr(launcher, "run", None) or importlib.import_module(package).run
    outcome = {"listening": listening, "keyed": keyed}
    try:
        outcome["results"] = run(
            add,
            args=(40,),
            kwargs={"other": 2},
            verbose=2,
            disable_cache=True,
            network_interface=loopback,
            **options,
        )
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    print("\n" + json.dumps(outcome, default=repr))


def record(cls, listening, keyed) -> None:
    """Append the address of each server of ``cls``, and whether it has a key."""
    bind = cls.server_bind

    def server_bind(self):
        bind(self)
        listening.append(self.server_address[0])
        if hasattr(self, "secret_key"):
            keyed.append(bool(self.secret_key))

    cls.server_bind = server_bind


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
