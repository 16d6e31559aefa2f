"""waiting.patch: a thread that waits for a collective does not wait for the cycle to end.

The cycle takes four minutes here, so that each program hangs without the patch.
"""

from __future__ import annotations

import os
import re

import pytest

from tests import compiling
from tests.checkout import run
from tests.ranks import LAUNCHED, ranks_of

#: Milliseconds.
CYCLE = "240000"
#: Seconds for a program, in which nothing takes more than three.
LIMIT = 100

#: The collectives end the cycles of all ranks before Horovod is shut down.
PROGRAM = """
import threading, time
import torch
import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()


def total(value=1.0, name=None, **options):
    values = torch.full((3,), float(value))
    return hvd.allreduce(values, op=hvd.Sum, name=name, **options)[0].item()


BODY
if hvd.is_initialized():
    hvd.barrier()
    hvd.shutdown()
print("done", flush=True)
"""

OPERATIONS = """
one = torch.ones(size)
assert total(name="sum") == size
assert hvd.allgather(one).numel() == size * size
assert hvd.broadcast(one * rank, root_rank=size - 1)[0].item() == size - 1
assert hvd.alltoall(one).numel() == size
assert hvd.reducescatter(one, op=hvd.Sum)[0].item() == size
assert [each[0].item() for each in hvd.grouped_allreduce([one, one], op=hvd.Sum)] == [size] * 2
assert [each.numel() for each in hvd.grouped_allgather([one, one])] == [size * size] * 2
hvd.barrier()
assert 0 <= hvd.join() < size
"""

#: 128 tensors of 40 kB, of which none is waited for before all are enqueued.
FUSED = """
handles = [hvd.allreduce_async(torch.ones(10000) * i, op=hvd.Sum) for i in range(128)]
for i, handle in enumerate(handles):
    assert hvd.synchronize(handle)[-1].item() == size * i
"""

#: Longer than the background threads hurry.
APART = """
for i in range(6):
    if i % size == rank:
        time.sleep(0.5)
    assert total(i) == size * i
"""

#: One rank's tensor is outstanding while all ranks do something else.
OF_ONE_RANK = """
if rank == 0:
    early = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="early")
for i in range(20):
    assert total(name=f"other {i}") == size
time.sleep(0.1)
if rank != 0:
    early = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="early")
assert hvd.synchronize(early).item() == size
"""

THREADS = """
failed = []


def work(thread):
    for i in range(20):
        if total(thread + i, name=f"{thread} {i}") != size * (thread + i):
            failed.append((thread, i))


threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert not failed, failed
"""

PROCESS_SETS = """
first, last = hvd.add_process_set([0]), hvd.add_process_set([size - 1])
for each in first, last:
    if each.included():
        assert total(process_set=each) == 1
assert total(name="sum") == size
hvd.remove_process_set(first)
assert total(name="sum") == size
"""

TRAINING = """
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(6)])
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 8) * rank).sum().backward()
    optimizer.step()
weights = hvd.allgather(model[0].weight.flatten()[None])
assert torch.equal(weights[0], weights[-1])
"""

#: Two threads end the tensor: the background thread, once another rank shuts down too, and the
#: caller, whose shutdown forgets all handles. The error is that of the last of them.
SHUT_DOWN = """
from horovod.common.exceptions import HorovodInternalError

if rank == 0:
    lost = hvd.allreduce_async(torch.ones(1), name="nobody else has it")
assert total(name="sum") == size
hvd.shutdown()
if rank == 0:
    try:
        hvd.synchronize(lost)
    except HorovodInternalError as error:
        assert "shut down" in str(error), error
    except ValueError as error:
        assert "has been cleared" in str(error), error
    else:
        raise AssertionError("no error")
"""

PROGRAMS = {
    "operations": OPERATIONS,
    "fused": FUSED,
    "ranks apart": APART,
    "tensor of one rank": OF_ONE_RANK,
    "threads": THREADS,
    "training": TRAINING,
}
#: Seconds of processor time of rank 0's thread, which waits three seconds for the other rank.
WAITED = """
assert total(name="sum") == size
if rank != 0:
    time.sleep(3)
before = time.thread_time()
assert total(name="sum") == size
if rank == 0:
    print("processor time:", time.thread_time() - before, flush=True)
"""


#: Three collectives, each of which may wait for a cycle of two seconds.
THREE = """
assert total(name="sum") == size
begin = time.perf_counter()
for _ in range(3):
    assert total(name="sum") == size
print("seconds:", time.perf_counter() - begin, flush=True)
"""
#: As TensorFlow's graphs do: nothing says who waits. A thread looks whether its tensors are done.
#: The first two rounds may each take three cycles of a second: the first has no round before it,
#: and the second ends the first.
ROUNDS = """
from horovod.torch import mpi_ops

mpi_ops._basics.MPI_LIB_CTYPES.horovod_infer_waits()


def poll(tensors):
    handles = [
        hvd.allreduce_async(torch.full((3,), float(i)), op=hvd.Sum, name=f"{i} of {tensors}")
        for i in range(tensors)
    ]
    while not all(hvd.poll(each) for each in handles):
        time.sleep(0.001)
    assert [hvd.synchronize(each)[0].item() for each in handles] == [
        size * i for i in range(tensors)
    ]


for tensors in 1, 7:
    for _ in range(3):
        poll(tensors)
    begin = time.perf_counter()
    for _ in range(30):
        poll(tensors)
    assert time.perf_counter() - begin < 15
"""
#: The background thread's sleep, with a thread that waits and no other thread. A busy machine may
#: take longer than the thread hurries, so that it has some attempts.
SLEEP = """
#include <cassert>
#include "horovod/common/waiters.h"

using horovod::common::Waiters;

int main() {
  Waiters waiters;
  auto hurries = [&](bool outstanding) {
    for (int i = 0; i < 20; ++i) {
      waiters.Progress();
      const auto end = Waiters::Clock::now() + std::chrono::milliseconds(10);
      if (waiters.Sleep(end, [=] { return outstanding; })) {
        return true;
      }
    }
    return false;
  };
  assert(!hurries(true));
  waiters.Begin(true);
  assert(hurries(true) && !hurries(false));
  waiters.End(true);
  waiters.Begin(false);
  assert(hurries(false));
  waiters.End(false);
  assert(!hurries(true));
  waiters.Infer();
  for (const char* name : {"a", "b", "a"}) {
    waiters.Enqueued(name);
    assert(!hurries(true));
  }
  waiters.Enqueued("b");
  assert(hurries(true) && !hurries(false));
  waiters.Enqueued("a");
  assert(!hurries(true));
  waiters.Enqueued("b");
  waiters.Enable(false);
  assert(!hurries(true));
}
"""


def run_ranks(built, launcher, body, folder, **options):
    """Run ``body`` on each rank; return the output.  All ranks must come to its end."""
    options = {"limit": LIMIT, "HOROVOD_CYCLE_TIME": CYCLE, **options}
    ranks = options.get("ranks", 2)
    output = ranks_of(built, launcher, PROGRAM.replace("BODY", body), folder, **options)
    assert output.count("done") == ranks, output
    return output


def one_after_the_other(*names):
    """A program of several, each of which says when it begins."""
    return "".join(f"print({name!r}, flush=True)\n{PROGRAMS[name]}" for name in names)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_no_call_waits_for_the_cycle(built_horovod, tmp_path, launcher):
    run_ranks(built_horovod, launcher, one_after_the_other(*PROGRAMS), tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_nor_does_a_shutdown(built_horovod, tmp_path, launcher):
    run_ranks(built_horovod, launcher, SHUT_DOWN, tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_nor_do_more_ranks_than_cores(built_horovod, tmp_path, launcher):
    ranks = len(os.sched_getaffinity(0)) + 1
    program = one_after_the_other("operations", "ranks apart", "threads")
    run_ranks(built_horovod, launcher, program, tmp_path, ranks=ranks)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_nor_do_process_sets(built_horovod, tmp_path, launcher):
    run_ranks(built_horovod, launcher, PROCESS_SETS, tmp_path, HOROVOD_DYNAMIC_PROCESS_SETS="1")


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_with_autotuning_and_a_timeline(built_horovod, tmp_path, launcher):
    timeline = tmp_path / "timeline.json"
    variables = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
        "HOROVOD_TIMELINE": str(timeline),
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    }
    run_ranks(built_horovod, launcher, FUSED * 10, tmp_path, **variables)
    assert "CYCLE_START" in timeline.read_text()


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_a_thread_that_waits_needs_no_core(built_horovod, tmp_path, launcher):
    """As released, the waiting thread polls all the time."""
    output = run_ranks(built_horovod, launcher, WAITED, tmp_path, HOROVOD_CYCLE_TIME="1")
    (seconds,) = re.findall(r"processor time: (\S+)", output)
    assert float(seconds) < 1


def test_the_switch_turns_it_off(built_horovod, tmp_path):
    def seconds(**variables):
        variables["HOROVOD_CYCLE_TIME"] = "2000"
        output = run_ranks(built_horovod, "mpirun", THREE, tmp_path, **variables)
        return min(map(float, re.findall(r"seconds: (\S+)", output)))

    assert seconds() < 2 < seconds(HOROVOD_WAKE_ON_WAIT="0")


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_a_complete_round_is_waited_for(built_horovod, tmp_path, launcher):
    run_ranks(built_horovod, launcher, ROUNDS, tmp_path, HOROVOD_CYCLE_TIME="1000")


@pytest.mark.parametrize("version", ["0.24.0", "0.28.1"])
def test_when_the_background_thread_hurries(tree, tmp_path, version):
    """A thread whose tensor is done may need the core that the background thread is on."""
    program = tmp_path / "sleep.cc"
    program.write_text(SLEEP)
    command = ["c++", "-std=c++14", "-Wall", "-Werror", "-pthread"]
    command += [*compiling.includes(tree(version)), program, "-o", tmp_path / "sleep"]
    run(command)
    run([tmp_path / "sleep"])
