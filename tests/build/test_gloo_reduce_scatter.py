"""gloo-reduce-scatter.patch: data that a rank has still to send is not written over."""

from __future__ import annotations

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("c++")

#: As much of Gloo as the reduce-scatter needs: ranks are threads, and one of them sends late.
GLOO = """
#pragma once
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace gloo {
// What ranks receive, by sender, receiver and slot.
struct Network {
  struct Inbox {
    char* data = nullptr;
    int received = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, Inbox> inboxes;
  int slow = -1;
};
namespace transport {
struct Buffer {
  Network& network;
  Network::Inbox& inbox;
  bool slow;
  char* data;
  size_t size;
  std::thread sending;
  bool waited = true;
  void send() { send(0, size); }
  void send(size_t offset, size_t bytes) {
    auto write = [this, offset, bytes] {
      if (slow) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      std::unique_lock<std::mutex> lock(network.mutex);
      network.changed.wait(lock, [this] { return inbox.data; });
      std::copy(data + offset, data + offset + bytes, inbox.data);
      ++inbox.received;
      network.changed.notify_all();
    };
    sending = std::thread(write);
    waited = false;
    if (!slow) {
      sending.join();
    }
  }
  void waitSend() {
    // Gloo raises an error if nothing was sent
    assert(!waited);
    waited = true;
    if (sending.joinable()) {
      sending.join();
    }
  }
  void waitRecv() {
    std::unique_lock<std::mutex> lock(network.mutex);
    network.changed.wait(lock, [this] { return inbox.received; });
    --inbox.received;
  }
  ~Buffer() {
    if (sending.joinable()) {
      sending.join();
    }
  }
};
struct Pair {
  Network& network;
  int rank;
  int peer;
  std::unique_ptr<Buffer> createSendBuffer(int slot, void* data, size_t size) {
    return made(rank, peer, slot, data, size);
  }
  std::unique_ptr<Buffer> createRecvBuffer(int slot, void* data, size_t size) {
    auto buffer = made(peer, rank, slot, data, size);
    std::lock_guard<std::mutex> lock(network.mutex);
    buffer->inbox.data = static_cast<char*>(data);
    network.changed.notify_all();
    return buffer;
  }
  std::unique_ptr<Buffer> made(int from, int to, int slot, void* data, size_t size) {
    std::lock_guard<std::mutex> lock(network.mutex);
    auto& inbox = network.inboxes[std::make_tuple(from, to, slot)];
    auto start = static_cast<char*>(data);
    return std::unique_ptr<Buffer>(
        new Buffer{network, inbox, from == network.slow, start, size});
  }
};
}
struct Context {
  int rank;
  std::vector<std::unique_ptr<transport::Pair>> pairs;
  std::unique_ptr<transport::Pair>& getPair(int peer) { return pairs[peer]; }
  int nextSlot(int) { return 0; }
};
template <typename T> struct ReductionFunction {
  static const ReductionFunction<T>* sum;
  void call(T* to, const T* from, size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      to[i] += from[i];
    }
  }
};
template <typename T>
const ReductionFunction<T>* ReductionFunction<T>::sum = new ReductionFunction<T>;
struct Algorithm {
  std::shared_ptr<Context> context_;
  int contextSize_;
  explicit Algorithm(const std::shared_ptr<Context>& context)
      : context_(context), contextSize_(context->pairs.size()) {}
  virtual ~Algorithm() noexcept(false) {}
  virtual void run() = 0;
};
}
"""

#: For each number of ranks and each slow one, none first: the elements that are wrong.
REDUCE_SCATTER = """
#include <algorithm>
#include <iostream>
#include <numeric>
#include "gloo/reduce_scatter.h"

// How many elements of all ranks are wrong.
int wrong(const std::vector<int>& counts, int slow) {
  gloo::Network network;
  network.slow = slow;
  int size = counts.size();
  int total = std::accumulate(counts.begin(), counts.end(), 0);
  std::vector<int> found(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto context = std::make_shared<gloo::Context>();
      context->rank = rank;
      for (int peer = 0; peer < size; ++peer) {
        context->pairs.emplace_back(new gloo::transport::Pair{network, rank, peer});
      }
      std::vector<int> data(total);
      std::iota(data.begin(), data.end(), rank);
      gloo::ReduceScatterHalvingDoubling<int> scatter(context, {data.data()}, total, counts);
      scatter.run();
      int first = std::accumulate(counts.begin(), counts.begin() + rank, 0);
      for (int i = 0; i < counts[rank]; ++i) {
        found[rank] += data[i] != size * (first + i) + size * (size - 1) / 2;
      }
      // as the caller may do now
      std::fill(data.begin(), data.end(), -1000);
    });
  }
  for (auto& each : ranks) {
    each.join();
  }
  return std::accumulate(found.begin(), found.end(), 0);
}

int main() {
  for (int size = 2; size <= 8; ++size) {
    for (int slow = -1; slow < size; ++slow) {
      std::vector<int> even(size, 5), few(size, 0);
      ++even[0];
      few[0] = few[1] = 8;
      std::cout << wrong(even, slow) << " " << wrong(few, slow) << " ";
    }
  }
}
"""


@pytest.mark.parametrize("version", ["0.25.0", "0.28.0"])
def test_a_slow_rank_sends_what_it_had(horovod_tree, tmp_path, version):
    (tmp_path / "gloo" / "common").mkdir(parents=True)
    (tmp_path / "gloo" / "algorithm.h").write_text(GLOO)
    for name in ("context", "common/error"):
        (tmp_path / "gloo" / f"{name}.h").write_text('#include "gloo/algorithm.h"\n')
    program = compiling.program(horovod_tree(version, "+gloo"), tmp_path, REDUCE_SCATTER)
    found = run([program], timeout=60).split()
    assert len(found) == 84 and set(found) == {"0"}
