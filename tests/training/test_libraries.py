"""Which library controls and which one performs operations: each pair works, or is refused."""

from __future__ import annotations

import pytest

from tests.ranks import ranks_of

#: Each operation, on all ranks and on a set that was given and one that was added; all of it once
#: more after a shutdown.
OPERATIONS = """
import os, torch, horovod.torch as hvd

if "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in os.environ:
    # what Horovod initializes itself, it finalizes, and MPI cannot be initialized twice
    from mpi4py import MPI

def values(rank, rows):
    return torch.arange(rows * 3.0).reshape(rows, 3) + 10 * rank

def check(members, process_set):
    if hvd.rank() not in members:
        return
    count, place = len(members), members.index(hvd.rank())
    mine, all_of = values(hvd.rank(), 2 * count), [values(rank, 2 * count) for rank in members]
    parts = slice(2 * place, 2 * place + 2)
    wanted = {
        "allreduce": (hvd.allreduce(mine, op=hvd.Sum, process_set=process_set), sum(all_of)),
        "allgather": (hvd.allgather(mine, process_set=process_set), torch.cat(all_of)),
        "broadcast": (hvd.broadcast(mine, members[-1], process_set=process_set), all_of[-1]),
        "alltoall": (
            hvd.alltoall(mine, process_set=process_set),
            torch.cat([each[parts] for each in all_of]),
        ),
        "reducescatter": (
            hvd.reducescatter(mine, op=hvd.Sum, process_set=process_set),
            sum(all_of)[parts],
        ),
    }
    for name, (found, right) in wanted.items():
        assert torch.equal(found, right), (name, members, found, right)
    hvd.barrier(process_set=process_set)

for turn in range(2):
    given = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[given])
    assert torch.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), 3.0))
    check([0, 1, 2], hvd.global_process_set)
    check([0, 1], given)
    check([0, 2], hvd.add_process_set([0, 2]))
    # rank 1 has less to do, and the first shutdown ends Horovod on all ranks
    hvd.barrier()
    hvd.shutdown()
print("done", flush=True)
"""

INIT = """
import horovod.torch as hvd
try:
    hvd.init()
except ValueError as error:
    print("refused", flush=True)
"""


@pytest.mark.parametrize(
    ("launcher", "operations"),
    [("mpirun", "mpi"), ("mpirun", "gloo"), ("horovodrun --gloo", "gloo")],
)
def test_operations_of_each_library(built_horovod, tmp_path, launcher, operations):
    variables = {"HOROVOD_CPU_OPERATIONS": operations, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    said = ranks_of(built_horovod, launcher, OPERATIONS, tmp_path, ranks=3, **variables)
    assert said.count("done") == 3


@pytest.mark.parametrize(
    ("launcher", "variables", "words"),
    [
        ("mpirun", {"HOROVOD_CONTROLLER": "gloo"}, "start them by horovodrun --gloo"),
        ("mpirun", {"HOROVOD_CPU_OPERATIONS": "ccl"}, "was built without oneCCL; unset it"),
        ("mpirun", {"HOROVOD_CPU_OPERATIONS": "mpich"}, "Unsupported CPU operation type"),
    ],
)
def test_refused_by_init_on_every_rank(built_horovod, tmp_path, launcher, variables, words):
    said = ranks_of(built_horovod, launcher, INIT, tmp_path, **variables)
    assert said.count("refused") == 2 and said.count(words) == 2, said


def test_gloo_alone_needs_its_operations(built_horovod, tmp_path):
    """With a rendezvous, so that nothing else is in the way."""
    variables = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}
    said = ranks_of(built_horovod, "mpirun", INIT, tmp_path, **variables)
    assert said.count("HOROVOD_CPU_OPERATIONS=gloo; set this one too") == 2, said
