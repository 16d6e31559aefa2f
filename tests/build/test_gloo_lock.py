"""gloo-lock.patch: the thread that reads sockets does not spin for a connection's lock."""

from __future__ import annotations

import pytest

from tests import compiling, needs
from tests.checkout import run

pytestmark = needs.programs("c++")

#: Gloo's own TCP transport, with two ranks in one process.  Another thread has the lock of the
#: receiving end for 0.2 s while there is something to read, and then, as one that closes the
#: connection, waits for the thread that reads.  Prints how often that one asked for events in a
#: second.
PROGRAM = """
#include <sys/epoll.h>
#include <atomic>
#include <cassert>
#include <chrono>
#include <future>
#include <iostream>
#include <numeric>
#include <thread>
#include <vector>
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/loop.h"
#include "gloo/transport/tcp/pair.h"

using namespace gloo::transport;

std::atomic<int> asked{0};
extern "C" int epoll_wait(int fd, epoll_event* events, int size, int timeout) {
  ++asked;
  return epoll_pwait(fd, events, size, timeout, nullptr);
}

struct Opened : tcp::Pair {
  static std::mutex& lock(tcp::Pair& pair) { return pair.*(&Opened::m_); }
  static int socket(tcp::Pair& pair) { return pair.*(&Opened::fd_); }
};

// 0.28.1 passes the pair as well
template <class D>
auto unregister(D& device, int fd, tcp::Pair* pair)
    -> decltype(device.unregisterDescriptor(fd, pair)) {
  device.unregisterDescriptor(fd, pair);
}
template <class D>
auto unregister(D& device, int fd, ...) -> decltype(device.unregisterDescriptor(fd)) {
  device.unregisterDescriptor(fd);
}

int main() {
  tcp::attr loopback;
  loopback.hostname = "127.0.0.1";
  std::shared_ptr<Device> devices[2];
  std::shared_ptr<Context> contexts[2];
  for (int rank = 0; rank < 2; ++rank) {
    devices[rank] = tcp::CreateDevice(loopback);
    contexts[rank] = devices[rank]->createContext(rank, 2);
    contexts[rank]->setTimeout(std::chrono::seconds(20));
    contexts[rank]->createPair(1 - rank);
  }
  auto connect = [&](int rank) {
    auto address = contexts[1 - rank]->getPair(rank)->address().bytes();
    contexts[rank]->getPair(1 - rank)->connect(address);
  };
  auto other = std::async(std::launch::async, connect, 1);
  connect(0);
  other.get();

  std::vector<int> sent(1 << 20), received(sent.size());
  std::iota(sent.begin(), sent.end(), 0);
  auto from = contexts[0]->createUnboundBuffer(sent.data(), sent.size() * sizeof(int));
  auto to = contexts[1]->createUnboundBuffer(received.data(), received.size() * sizeof(int));
  auto& pair = static_cast<tcp::Pair&>(*contexts[1]->getPair(0));
  auto& device = static_cast<tcp::Device&>(*devices[1]);
  {
    std::lock_guard<std::mutex> holding(Opened::lock(pair));
    from->send(1, 0);
    asked = 0;
    // a busy machine may take longer
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << int(asked / took.count()) << std::endl;
    unregister(device, Opened::socket(pair), &pair);
    device.registerDescriptor(Opened::socket(pair), EPOLLIN, &pair);
  }
  to->recv(0, 0);
  to->waitRecv(std::chrono::seconds(20));
  from->waitSend(std::chrono::seconds(20));
  assert(received == sent);
}
"""


@pytest.mark.parametrize("version", ["0.24.0", "0.28.1"])
def test_a_lock_is_waited_for_asleep(horovod_tree, tmp_path, version):
    tree = horovod_tree(version, "+gloo")
    program = compiling.program(tree, tmp_path, PROGRAM, *compiling.gloo(tree))
    # each of the two threads does so every 10 ms without an event, and this one every 1 ms;
    # without the patch a million times
    assert int(run([program], timeout=60)) < 5000
