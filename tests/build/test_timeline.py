"""timeline-writer.patch: writing the timeline needs no core, and ends with the last event."""

from __future__ import annotations

import json

from tests.ranks import ranks_of

PROGRAM = """
import time, torch, horovod.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1), name="first")
begin = time.process_time()
time.sleep(2)
used = time.process_time() - begin
assert used < 0.3, f"{used} s of two"
for number in range(2000):
    hvd.allreduce(torch.ones(1), name=f"last {number}")
hvd.shutdown()
"""


def test_it_needs_no_core_and_is_complete(built_horovod, tmp_path):
    timeline = tmp_path / "timeline.json"
    # over MPI, an idle rank polls
    variables = {"HOROVOD_TIMELINE": str(timeline), "HOROVOD_CYCLE_TIME": "10"}
    ranks_of(built_horovod, "horovodrun --gloo", PROGRAM, tmp_path, **variables)
    events = json.loads(timeline.read_text())
    begun = [each["ph"] for each in events if each.get("ph") in ("B", "E")]
    assert begun.count("B") == begun.count("E") > 2001 * 2, begun[-5:]
