"""The benchmark's program of collectives, on two ranks: Horovod, and its peers without it."""

import pytest

from hvd.bench import collectives
from tests.ranks import LAUNCHED

pytestmark = pytest.mark.xdist_group("built")


@pytest.mark.parametrize("launcher", LAUNCHED.values(), ids=LAUNCHED)
@pytest.mark.parametrize("method", ["horovod", "peer"])
def test_every_result_is_right(built_horovod, launcher, method, tmp_path):
    """The program itself compares each result with the known one, and stops at a wrong one."""
    out, log = tmp_path / "out", tmp_path / "log"
    parts = ("collectives", "training")
    collectives.launch(launcher, built_horovod.target, out, 2, log, method, parts, 0.001)
    name = collectives.NAMES[method][launcher.controller]
    rows = collectives.rows(name, [out], 2)
    operations = {row.operation for row in rows if row.minimum > 0}
    assert {"allgather", "allreduce", "alltoall", "broadcast", "reducescatter"} <= operations
    trains = any(operation.startswith("training") for operation in operations)
    assert trains == (name != "mpi4py")
