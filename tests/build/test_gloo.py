"""gloo-exchange, http-store and gloo-mesh.patch: how many messages Horovod sends over Gloo."""

from __future__ import annotations

import http.server
import re
import threading

import pytest

from tests import compiling, needs
from tests.checkout import run
from tests.ranks import ranks_of

pytestmark = needs.programs("c++")

#: As much of Gloo as the allreduce needs: ranks are threads, and messages are counted.
GLOO = """
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gloo {
using Bytes = std::vector<uint8_t>;
struct Network {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages;
  std::map<int, int> sent;
  std::atomic<int> rings{0};
};
struct Buffer {
  Network& network;
  int rank;
  uint8_t* data;
  size_t size;
  int source = -1;
  void send(int peer, uint64_t) {
    std::lock_guard<std::mutex> lock(network.mutex);
    network.messages[{rank, peer}].emplace_back(data, data + size);
    ++network.sent[rank];
    network.changed.notify_all();
  }
  void waitSend(std::chrono::milliseconds) {}
  void recv(int peer, uint64_t) { source = peer; }
  void waitRecv(std::chrono::milliseconds) {
    std::unique_lock<std::mutex> lock(network.mutex);
    auto& queue = network.messages[{source, rank}];
    network.changed.wait(lock, [&] { return !queue.empty(); });
    std::copy(queue.front().begin(), queue.front().end(), data);
    queue.pop_front();
  }
};
struct Context {
  Network& network;
  int rank;
  int size;
  std::chrono::milliseconds getTimeout() { return {}; }
  std::unique_ptr<Buffer> createUnboundBuffer(void* data, size_t bytes) {
    return std::unique_ptr<Buffer>(
        new Buffer{network, rank, static_cast<uint8_t*>(data), bytes});
  }
};
struct Slot {
  static uint64_t build(uint8_t, uint32_t) { return 0; }
};
constexpr uint8_t kAllreduceSlotPrefix = 4;
struct AllreduceOptions {
  using Func = std::function<void(void*, const void*, const void*, size_t)>;
  std::shared_ptr<Context> context;
  explicit AllreduceOptions(const std::shared_ptr<Context>& given) : context(given) {}
  template <typename T> void setOutput(T*, size_t) {}
  void setReduceFunction(Func) {}
};
inline void allreduce(AllreduceOptions& options) { ++options.context->network.rings; }
}
"""

#: For each number of ranks: the most messages of one.
ALLREDUCE = """
#include <algorithm>
#include <cassert>
#include <cstring>
#include <iostream>
#include <thread>
#include "horovod/common/gloo/gloo_allreduce.h"

void add(void* to, const void* a, const void* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    static_cast<float*>(to)[i] = static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
  }
}

int messages(int size, size_t elements, bool ring) {
  gloo::Network network;
  // sums of these depend on the order
  std::vector<std::vector<float>> data(size, std::vector<float>(elements));
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    std::fill(data[rank].begin(), data[rank].end(), 0.1f + rank / 3.0f);
    sum += 0.1 + rank / 3.0;
  }
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto context = std::make_shared<gloo::Context>(gloo::Context{network, rank, size});
      horovod::common::GlooAllreduceInPlace(context, data[rank].data(), elements, add);
    });
  }
  for (auto& each : ranks) {
    each.join();
  }
  assert(network.rings == (ring ? size : 0));
  for (const auto& each : data) {
    // the same bits on all ranks
    assert(ring || std::memcmp(each.data(), data[0].data(), elements * sizeof(float)) == 0);
    for (float value : each) {
      assert(ring || std::abs(value - sum) < 1e-4 * sum);
    }
  }
  int most = 0;
  for (const auto& each : network.sent) {
    most = std::max(most, each.second);
  }
  return most;
}

int main() {
  for (int size = 1; size <= 17; ++size) {
    std::cout << messages(size, 65536, false) << " ";
    messages(size, 0, false);
    messages(size, 65537, true);
  }
}
"""

STORE = """
#include <cassert>
#include <cstdlib>
#include "horovod/common/gloo/http_store.h"

int main(int, char** argv) {
  horovod::common::HTTPStore store("127.0.0.1", std::atoi(argv[1]), "global", 0);
  for (int i = 0; i < 2; ++i) {
    store.wait({"1", "2"}, std::chrono::seconds(20));
    for (const char* key : {"1", "2"}) {
      auto value = store.get(key);
      assert(std::string(value.begin(), value.end()) == key);
    }
  }
}
"""
#: A process set of the first rank, beside that of all.
PROCESS_SETS = """
import horovod.torch as hvd
hvd.init(process_sets=[hvd.ProcessSet([0])])
"""


@pytest.mark.parametrize(
    ("built", "operations"), [("HAVE_GLOO", "GLOO"), ("HAVE_MPI", "MPI"), ("HAVE_CCL", "CCL")]
)
def test_operations_where_no_launcher_says(horovod_tree, built, operations):
    """gloo-operations.patch: of a library that Horovod was built with."""
    tree = horovod_tree("0.28.1", "+gloo")
    mpi = [] if built == "HAVE_GLOO" else ["-DHAVE_MPI=1"]
    source = "horovod/common/utils/env_parser.cc"
    text = compiling.preprocessed(tree, source, f"-D{built}=1", *mpi)
    default = text.partition("LibType ParseCPUOpsFromEnv()")[2].partition("getenv")[0]
    assert re.findall(r"cpu_operation = LibType::(\w+)", default)[-1] == operations


@pytest.mark.parametrize("version", ["0.26.0", "0.28.1"])
def test_little_data_is_allreduced_in_the_fewest_messages(horovod_tree, tmp_path, version):
    (tmp_path / "gloo").mkdir()
    (tmp_path / "gloo" / "allreduce.h").write_text(GLOO)
    for name in ("context", "types"):
        (tmp_path / "gloo" / f"{name}.h").write_text('#include "gloo/allreduce.h"\n')
    program = compiling.program(horovod_tree(version, "+gloo"), tmp_path, ALLREDUCE)
    found = [int(word) for word in run([program]).split()]
    # with a partner beyond the last power of two, one more
    wanted = [0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5]
    assert found == wanted


@pytest.mark.parametrize("version", ["0.20.0", "0.28.0"])
def test_an_address_is_asked_for_once(horovod_tree, tmp_path, version):
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            # the second rank is late
            late = asked == ["/global/1", "/global/2"]
            self.send_response(404 if late else 200)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(self.path[-1].encode())

        def log_message(self, *_):
            pass

    tree = horovod_tree(version, "+gloo")
    program = compiling.program(tree, tmp_path, STORE, *compiling.STORE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run([program, server.server_port])
        server.shutdown()
    assert sorted(asked) == ["/global/1"] * 2 + ["/global/2"] * 3


def test_the_process_set_of_all_ranks_makes_no_connections(built_horovod, tmp_path):
    variables = {"HOROVOD_LOG_LEVEL": "debug"}
    said = ranks_of(built_horovod, "horovodrun --gloo", PROCESS_SETS, tmp_path, **variables)
    assert said.count("Global Gloo context initialized.") == 2
    assert said.count("Global Gloo context initialized for process set") == 1
