"""The benchmark's programs, on few ranks: Horovod, and its peers without it."""

import pytest

from benchmarks import collectives, starts
from tests.ranks import LAUNCHED


@pytest.mark.parametrize("launcher", LAUNCHED.values(), ids=LAUNCHED)
@pytest.mark.parametrize("method", ["horovod", "peer"])
def test_every_result_is_right(built_horovod, launcher, method, tmp_path):
    """The program itself compares each result with the known one, and stops at a wrong one."""
    words = (built_horovod.target, method, collectives.PARTS, 2, tmp_path / "log", 0.001)
    operations = {call["operation"] for call in collectives.launch(launcher, *words)}
    assert {"allgather", "allreduce", "alltoall", "broadcast", "reducescatter"} <= operations
    trains = any(operation.startswith("training") for operation in operations)
    assert trains == (method == "horovod" or launcher.controller == "gloo")


def test_starts_are_timed(built_horovod, tmp_path, monkeypatch):
    """The programs themselves fail where a sum, or what the server answers, is wrong."""
    target, log = built_horovod.target, tmp_path / "log"
    assert starts.served(target, 20) > 0
    for launcher in ("horovodrun", "torchrun"):
        init, whole = starts.launched(target, launcher, 2, log)
        assert 0 < init < whole
    times = starts.over(target, 2, log)
    assert times.pop("CPU") > 0 and list(times.values()) == sorted(times.values())
    monkeypatch.setattr(starts, "HOSTS", 2)
    monkeypatch.setattr(starts, "RANKS_OF_HOST", 1)
    assert min(starts.lost(target, log)) > 0
