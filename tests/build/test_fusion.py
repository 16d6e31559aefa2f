"""mpi-large-tensors.patch: small tensors are copied together to be reduced, large ones are not."""

from __future__ import annotations

import json

from tests.ranks import ranks_of

#: A rank that has joined has zeros which are as large as the others' tensors.
GROUPS = """
import torch, horovod.torch as hvd
hvd.init()
# elements of float32: large from 64 KiB on two ranks
sizes = {"small": 10, "large": 100_000, "last small": 16_383, "first large": 16_384}
for op, wanted in ((hvd.Sum, 6.0), (hvd.Average, 3.0)):
    for in_place in (False, True):
        tensors = [torch.full((n,), float(hvd.rank() + 1)) for n in sizes.values()]
        call = hvd.grouped_allreduce_ if in_place else hvd.grouped_allreduce
        for result in call(tensors, op=op, prescale_factor=2.0, name="group"):
            assert torch.equal(result, torch.full_like(result, wanted)), (op, in_place, result)
# when the other rank has joined
if hvd.rank() == 0:
    for result in hvd.grouped_allreduce([torch.ones(n) for n in sizes.values()], op=hvd.Sum):
        assert torch.equal(result, torch.ones_like(result)), result
hvd.join()
hvd.shutdown()
"""


def test_large_tensors_are_reduced_where_they_are(built_horovod, tmp_path):
    timeline = tmp_path / "timeline.json"
    ranks_of(built_horovod, "mpirun", GROUPS, tmp_path, HOROVOD_TIMELINE=str(timeline))
    # each tensor has events of its own
    events = json.loads(timeline.read_text())
    names = {e["pid"]: e["args"].get("name") for e in events if e.get("name") == "process_name"}

    def tensors(event):
        return {names[each["pid"]] for each in events if each.get("name") == event}

    group = {f"grouped_allreduce.group_{number}of4" for number in range(1, 5)}
    small = {f"grouped_allreduce.group_{number}of4" for number in (1, 3)}
    assert group <= tensors("MPI_ALLREDUCE")
    assert group & tensors("MEMCPY_IN_FUSION_BUFFER") == small
