"""The benchmark's program of collectives, on two ranks: Horovod, and its peers without it."""

import pytest

from benchmarks import collectives
from tests.ranks import LAUNCHED

pytestmark = pytest.mark.xdist_group("built")


@pytest.mark.parametrize("launcher", LAUNCHED.values(), ids=LAUNCHED)
@pytest.mark.parametrize("method", ["horovod", "peer"])
def test_every_result_is_right(built_horovod, launcher, method, tmp_path):
    """The program itself compares each result with the known one, and stops at a wrong one."""
    words = (built_horovod.target, method, collectives.PARTS, 2, tmp_path / "log", 0.001)
    operations = {call["operation"] for call in collectives.launch(launcher, *words)}
    assert {"allgather", "allreduce", "alltoall", "broadcast", "reducescatter"} <= operations
    trains = any(operation.startswith("training") for operation in operations)
    assert trains == (method == "horovod" or launcher.controller == "gloo")
