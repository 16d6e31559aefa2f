"""gloo-messages, -lost-peer, -parts and -float16.patch; the ranks of Gloo are threads."""

from __future__ import annotations

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("c++")

#: Every rank of a number of them performs a function.
RANKS = """
#include <atomic>
#include <cassert>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
using Rank = std::shared_ptr<gloo::rendezvous::Context>;

void ranks(int size, std::function<void(Rank)> perform) {
  gloo::rendezvous::HashStore store;
  std::vector<std::thread> threads;
  std::atomic<int> connected{0};
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      gloo::transport::tcp::attr loopback;
      loopback.hostname = "127.0.0.1";
      auto device = gloo::transport::tcp::CreateDevice(loopback);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
      context->setTimeout(std::chrono::seconds(20));
      context->connectFullMesh(store, device);
      for (++connected; connected < size;) {
        std::this_thread::yield();
      }
      perform(context);
    });
  }
  for (auto& each : threads) {
    each.join();
  }
}
"""

#: Messages around the longest short one, on one slot, in every order; and the last of a rank.
MESSAGES = """
const std::vector<size_t> lengths = {0, 1, 16384, 16385, 3, 300000, 16383, 0, 40000, 5};

void in_order(Rank context) {
  std::vector<std::vector<uint8_t>> data;
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < lengths.size(); ++i) {
    data.emplace_back(lengths[i], context->rank == 0 ? i + 1 : 0);
    buffers.push_back(context->createUnboundBuffer(data[i].data(), lengths[i]));
    context->rank == 0 ? buffers[i]->send(1, 7) : buffers[i]->recv(0, 7);
    if (i == lengths.size() / 2 && context->rank == 1) {
      // what comes now was not asked for yet
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    context->rank == 0 ? buffers[i]->waitSend() : buffers[i]->waitRecv();
    assert(data[i] == std::vector<uint8_t>(lengths[i], i + 1));
  }
}

void last(Rank context) {
  int data = context->rank == 0 ? 42 : 0;
  auto buffer = context->createUnboundBuffer(&data, sizeof(data));
  if (context->rank == 0) {
    buffer->send(1, 7);
    buffer->waitSend();
    context->closeConnections();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    buffer->recv(0, 7);
    buffer->waitRecv();
    assert(data == 42);
    // and there is no second one
    bool failed = false;
    try {
      buffer->recv(0, 7);
      buffer->waitRecv();
    } catch (const gloo::IoException&) {
      failed = true;
    }
    assert(failed);
  }
}

int main() {
  ranks(2, in_order);
  ranks(2, last);
}
"""

#: A connection ends when a part of a message has been sent and received.
LOST = """
#include <signal.h>
#include <sys/socket.h>
#include "gloo/transport/tcp/pair.h"

struct Opened : gloo::transport::tcp::Pair {
  static int socket(gloo::transport::tcp::Pair& pair) { return pair.*(&Opened::fd_); }
};

void lost(Rank context) {
  std::vector<uint8_t> data(1 << 26, context->rank == 0);
  auto buffer = context->createUnboundBuffer(data.data(), data.size());
  if (context->rank == 0) {
    buffer->send(1, 7);
  } else {
    buffer->recv(0, 7);
    while (!*static_cast<volatile uint8_t*>(data.data())) {
      std::this_thread::yield();
    }
    auto& pair = static_cast<gloo::transport::tcp::Pair&>(*context->getPair(0));
    shutdown(Opened::socket(pair), SHUT_RDWR);
  }
  auto begin = std::chrono::steady_clock::now();
  bool failed = false;
  try {
    context->rank == 0 ? buffer->waitSend() : buffer->waitRecv();
  } catch (const gloo::IoException&) {
    failed = true;
  }
  // the time-out is twice as long
  assert(failed && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

int main() {
  // as in Python
  signal(SIGPIPE, SIG_IGN);
  ranks(2, lost);
}
"""

#: Parts of every size, of none, and of more than a piece; beside the data, and in its place.
PARTS = """
#include "horovod/common/gloo/gloo_reduce_scatter.h"

void add(void* to, const void* a, const void* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    static_cast<int64_t*>(to)[i] =
        static_cast<const int64_t*>(a)[i] + static_cast<const int64_t*>(b)[i];
  }
}

void scatter(Rank context, const std::vector<int64_t>& counts, bool in_place) {
  int rank = context->rank, size = context->size;
  auto end = counts.begin() + rank;
  size_t begin = std::accumulate(counts.begin(), end, int64_t(0));
  std::vector<int64_t> given(std::accumulate(end, counts.end(), int64_t(begin)));
  std::iota(given.begin(), given.end(), 1000 * rank);
  auto data = given;
  std::vector<int64_t> beside(counts[rank]);
  auto* result = in_place ? data.data() + begin : beside.data();
  horovod::common::GlooReduceScatter(context, data.data(), result, counts, sizeof(int64_t), add);
  for (int64_t i = 0; i < counts[rank]; ++i) {
    assert(result[i] == int64_t(size * (begin + i)) + 1000 * size * (size - 1) / 2);
    data[begin + i] = given[begin + i];
  }
  assert(data == given);
}

int main() {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    ranks(size, [size](Rank context) {
      for (int64_t most : {0, 1, 700, 32768, 32769, 100001}) {
        std::vector<int64_t> even(size, most), odd(size), few(size);
        for (int i = 0; i < size; ++i) {
          odd[i] = i % 2 ? most : most / 3;
        }
        few[size / 2] = most;
        for (const auto& counts : {even, odd, few}) {
          scatter(context, counts, false);
          scatter(context, counts, true);
        }
      }
    });
  }
}
"""

#: All of float16, and of each some with all of float16, by the compiler's own type.
FLOAT16 = """
#include <cassert>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>
#include "horovod/common/half.h"

using namespace horovod::common;
using Operation = void (*)(void*, const void*, const void*, size_t);

uint16_t half(float value) {
  uint16_t bits;
  Float2HalfBits(&value, &bits);
  return bits;
}

float single(uint16_t bits) {
  float value;
  HalfBits2Float(&bits, &value);
  return value;
}

bool same(uint16_t a, uint16_t b) {
  auto nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7c00; };
  return a == b || (nan(a) && nan(b));
}

void check(Operation operation, std::function<float(float, float)> known) {
  // normal and not, infinite, not a number, of both signs
  const uint16_t others[] = {0, 1, 0x3ff, 0x400, 0x3555, 0x3c00, 0x7bff, 0x7c00, 0x7e01,
                             0x8000, 0x8001, 0x83ff, 0xb555, 0xfbff, 0xfc00, 0xfe01};
  // what is left of vectors; and an odd address
  std::vector<uint8_t> memory(3 * 2 * 65536 + 1);
  auto* a = reinterpret_cast<uint16_t*>(memory.data() + 1);
  auto* b = a + 65536;
  auto* result = b + 65536;
  for (uint16_t other : others) {
    for (size_t n : {0, 1, 7, 8, 9, 65535, 65536}) {
      for (size_t i = 0; i < n; ++i) {
        uint16_t bits = i, with = other ^ (n < 10 ? i << 4 : 0);
        std::memcpy(a + i, &bits, 2);
        std::memcpy(b + i, &with, 2);
      }
      operation(result, a, b, n);
      operation(a, a, b, n);
      for (size_t i = 0; i < n; ++i) {
        uint16_t bits = i, with = other ^ (n < 10 ? i << 4 : 0), found, in_place;
        std::memcpy(&found, result + i, 2);
        std::memcpy(&in_place, a + i, 2);
        assert(same(found, half(known(single(bits), single(with)))));
        assert(found == in_place);
      }
    }
  }
}

int main() {
  check(Float16Sum, [](float a, float b) { return a + b; });
  check(Float16Product, [](float a, float b) { return a * b; });
  check(Float16Min, [](float a, float b) { return b < a ? b : a; });
  check(Float16Max, [](float a, float b) { return a < b ? b : a; });
  for (float factor : {0.5f, 1 / 3.0f, 1e-6f, 3e4f}) {
    std::vector<uint16_t> given(65536), result(65536);
    for (size_t i = 0; i < given.size(); ++i) {
      given[i] = i;
    }
    Float16Scale(result.data(), given.data(), factor, given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      assert(same(result[i], half(factor * single(given[i]))));
    }
  }
}
"""


@pytest.fixture(scope="module")
def horovod(horovod_tree):
    return horovod_tree("0.28.1", "+gloo")


@pytest.fixture(scope="module")
def gloo(horovod, tmp_path_factory):
    names = [f"rendezvous/{name}" for name in ("context", "hash_store", "prefix_store", "store")]
    sources = compiling.gloo(horovod, *compiling.ALGORITHMS, *names)
    return compiling.library(horovod, tmp_path_factory.mktemp("gloo"), *sources)


@pytest.mark.parametrize("text", [MESSAGES, LOST, PARTS], ids=["messages", "lost", "parts"])
def test_what_each_rank_gets(horovod, gloo, tmp_path, text):
    run([compiling.program(horovod, tmp_path, RANKS + text, gloo)], timeout=60)


def test_float16_is_computed_in_float32(horovod, tmp_path):
    source = horovod / "horovod/common/half.cc"
    run([compiling.program(horovod, tmp_path, FLOAT16, source)], timeout=60)
