"""rendezvous-finished.patch: hvd.init() follows hvd.shutdown() over Gloo."""

import pytest

from tests.ranks import ranks_of

#: Two ranks on a host are done with their scopes in this order, in which the first is faster; then
#: they initialize Horovod once more.  Prints the scopes that still have an address of the first
#: time when the second begins.
SCOPES = """
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer
from horovod.runner.http import http_client
import http.client

server = RendezvousServer()
port = server.start(address="127.0.0.1") if {address} else server.start()
server.init([SlotInfo("a", rank, rank, 0, 2, 2, 1) for rank in range(2)])

def ask(method, scope, rank, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, f"/{{scope}}/{{rank}}", body)
    assert connection.getresponse().status == 200
    connection.close()

for scope, ranks in dict(global_=(0, 1), local_a=(0, 1), cross_0=(0,), cross_1=(0,)).items():
    for rank in ranks:
        ask("PUT", scope.rstrip("_"), rank, b"address")
for scope, rank in [("global", 0), ("global", 1), ("local_a", 0), ("cross_0", 0), ("local_a", 1),
                    ("cross_1", 0)]:
    ask("DELETE", scope, rank)
print(sorted(scope for scope, keys in server._httpd.cache.items() if keys))
"""

AGAIN = """
import torch
import horovod.torch as hvd

for turn in range(5):
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.shutdown()
"""


# the first version with this bug, and the last
@pytest.mark.parametrize("version", ["0.23.0", "0.28.1"])
def test_the_rendezvous_forgets_the_addresses_of_every_scope(unbuilt, version):
    assert unbuilt(version).run(SCOPES.format(address=version == "0.28.1")).split() == ["[]"]


def test_two_ranks_initialize_horovod_again_and_again(built_horovod, tmp_path):
    ranks_of(built_horovod, "horovodrun --gloo", AGAIN, tmp_path)
