"""gloo-start.patch: each rank asks the rendezvous once, for what it needs."""

from __future__ import annotations

import json
import re

from tests import compiling
from tests.ranks import ranks_of

#: Ranks are threads, which connect by the server, and those of even numbers by these connections.
RANKS = """
#include <cstdlib>
#include <iostream>
#include <thread>
#include "gloo/transport/tcp/device.h"
#include "horovod/common/gloo/gloo_allreduce.h"
#include "horovod/common/gloo/gloo_mesh.h"
#include "horovod/common/gloo/http_store.h"
using namespace horovod::common;

// PORT RANKS: print the sums of all ranks' numbers, and of the even ones
int main(int, char** argv) {
  const int port = std::atoi(argv[1]), size = std::atoi(argv[2]);
  const auto timeout = std::chrono::seconds(20);
  std::vector<int> even;
  for (int rank = 0; rank < size; rank += 2) {
    even.push_back(rank);
  }
  std::vector<std::string> said(size);
  auto run = [&](int rank) {
    gloo::transport::tcp::attr loopback;
    loopback.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(loopback);
    auto all = std::make_shared<GlooMesh>(rank, size, timeout);
    all->Connect(device, [&](std::string parts) {
      HTTPStore store("127.0.0.1", port, "global", rank);
      return store.Exchange(parts, "a:" + std::to_string(rank), size, timeout);
    });
    for (int value : GlooGather(all, rank * rank)) {
      said[rank] += std::to_string(value) + " ";
    }
    if (rank % 2 == 0) {
      auto some = std::make_shared<GlooMesh>(rank / 2, even.size(), timeout);
      some->Connect(device, [&](std::string parts) {
        return GlooExchangeParts(all, even, parts);
      });
      for (int value : GlooGather(some, rank)) {
        said[rank] += std::to_string(value) + " ";
      }
    }
    // all have received before one closes its connections
    GlooGather(all, rank);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(run, rank);
  }
  for (auto& each : ranks) {
    each.join();
  }
  for (const auto& each : said) {
    std::cout << each << std::endl;
  }
}
"""
#: Run that program, with a key, and print what the server was asked, and the program's lines.
ASKED = """
import json, os, subprocess, sys
from horovod.runner.common.util import secret
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

asked = []
class Handler(RendezvousHandler):
    def parse_request(self):
        parsed = super().parse_request()
        asked.append((self.command, int(self.headers["Content-Length"])))
        return parsed

key, ranks = os.urandom(32), int(sys.argv[2])
server = RendezvousServer()
server.secret_key = key
port = server.start(Handler, "127.0.0.1")
server.init(get_host_assignments([HostInfo("a", ranks)], ranks))
variables = {**os.environ, secret.HOROVOD_RENDEZVOUS_KEY: key.hex()}
command = [sys.argv[1], str(port), str(ranks)]
said = subprocess.run(command, env=variables, stdout=subprocess.PIPE, timeout=60, check=True)
print(json.dumps([asked, said.stdout.decode().splitlines()]))
"""
#: Ranks that come to the server of an elastic job, and what each is told.
MEETINGS = """
import http.client, json, time
from horovod.runner.common.util import secret
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_client import DIGEST_HEADER
from horovod.runner.http.http_server import RendezvousServer

class Driver:
    def get_slot_info(self, host, local_rank):
        slots = {(each.hostname, each.local_rank): each for each in plan}
        return slots[host, local_rank]

def begin(ranks):
    global plan
    plan = get_host_assignments([HostInfo("a", ranks), HostInfo("b", 1)], ranks + 1)
    server.init(plan)

def come(rank, size, slot=None, timeout=60, key=b"1" * 32, length=2):
    place = f"/global/{rank}?size={size}&slot={slot or f'a:{rank}'}&timeout={timeout}"
    parts = "".join(f"{rank}{other}".ljust(length) for other in range(size)).encode()
    digest = secret.rendezvous_digest(key, "POST", place, parts)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", place, parts, {DIGEST_HEADER: digest})
    return connection

def waits(*ranks):
    deadline = time.monotonic() + 20
    while set(server._httpd.meeting._waiting) != set(ranks):
        assert time.monotonic() < deadline, server._httpd.meeting._waiting
        time.sleep(0.01)

def told(*connections):
    answers = [connection.getresponse() for connection in connections]
    return [[each.status, each.read().decode()] for each in answers]

def all_come():
    return told(come(0, 3), come(1, 3), come(2, 3, "b:0"))

server = RendezvousServer()
server.secret_key = b"1" * 32
port = server.start(create_rendezvous_handler(Driver()), "127.0.0.1")
said = {}

begin(2)
said["another key"] = told(come(1, 3, key=b"2" * 32))
said["all"] = all_come()
said["all once more"] = all_come()
said["no rank of the job"] = told(come(0, 2), come(1, 3, "b:0"), come(3, 3), come(-1, 3))
lost = come(0, 3)
waits(0)
said["parts of another length"] = told(come(1, 3, length=3))
asked_again = come(0, 3), come(1, 3)
waits(0, 1)
said["after a lost connection"] = told(*asked_again, come(2, 3, "b:0"))

early = come(0, 3), come(1, 3, timeout=1)
said["late"] = told(*early)
said["too late"] = told(come(2, 3, "b:0"))
begin(2)
ends, waiting = come(0, 3), come(1, 3)
waits(0, 1)
ends.close()
said["one ends"] = told(waiting)
begin(2)
waiting = come(0, 3)
waits(0)
begin(1)
said["others"] = told(waiting)
said["those"] = told(come(0, 2), come(1, 2, "b:0"))
print(json.dumps(said))
"""
#: A rank that does not come: what the other one says.
ALONE = """
import os, time
if os.environ["HOROVOD_RANK"] == "1":
    time.sleep(8)
else:
    import horovod.torch as hvd
    try:
        hvd.init()
    except ValueError:
        print("refused")
"""
#: Three process sets of four ranks.
SETS = """
import torch
import horovod.torch as hvd
sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([3, 1]), hvd.ProcessSet([0, 2, 3])]
hvd.init(process_sets=sets)
for each in sets:
    if each.included():
        found = hvd.allgather(torch.tensor([hvd.rank()]), process_set=each).tolist()
        assert found == sorted(each.ranks), (found, each.ranks)
# a rank that ends first would end all
hvd.barrier()
"""


def test_each_rank_asks_the_server_once(unbuilt, horovod_tree, tmp_path):
    tree = horovod_tree("0.28.1", "+gloo")
    sources = [*compiling.STORE, *compiling.gloo(tree, *compiling.ALGORITHMS)]
    program = compiling.program(tree, tmp_path, RANKS, *sources)
    asked, said = json.loads(unbuilt("0.28.1").run(ASKED, program, "5"))
    # an address of IPv4 and its number for each rank
    assert asked == [["POST", 5 * 24]] * 5
    every, even = "0 1 4 9 16 ", "0 2 4 "
    assert said == [every + even if rank % 2 == 0 else every for rank in range(5)]


def test_who_comes_to_the_meeting(unbuilt):
    said = json.loads(unbuilt("0.28.1").run(MEETINGS))
    everyone = [[200, "001020"], [200, "011121"], [200, "021222"]]
    nobody = "The job has no rank {} of {} here now."
    late = "Rank 2 of 3 did not come in time to connect."
    ended = "Rank 0 ended, or lost the connection, while the others waited to connect."
    kinds = said.pop("parts of another length")
    assert [status for status, _ in kinds] == [409] and "IPv4" in kinds[0][1]
    assert said == {
        "another key": [[403, ""]],
        "all": everyone,
        "all once more": everyone,
        "no rank of the job": [[409, nobody.format(*each)] for each in ((0, 2), (1, 3), (3, 3))]
        + [[400, ""]],
        "after a lost connection": everyone,
        "late": [[408, late]] * 2,
        "too late": [[409, late]],
        "one ends": [[409, ended]],
        "others": [[409, "The job has other ranks now."]],
        "those": [[200, "0010"], [200, "0111"]],
    }


def test_a_rank_that_does_not_come_is_named(built_horovod, tmp_path):
    variables = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "2"}
    said = ranks_of(built_horovod, "horovodrun --gloo", ALONE, tmp_path, **variables)
    assert "Rank 1 of 2 did not come in time to connect." in said and "refused" in said


def test_process_sets_ask_the_server_for_nothing(built_horovod, tmp_path):
    variables = {"HOROVOD_LOG_LEVEL": "trace"}
    said = ranks_of(built_horovod, "horovodrun --gloo", SETS, tmp_path, ranks=4, **variables)
    assert re.findall(r"Send (\w+) request", said) == ["POST"] * 4
