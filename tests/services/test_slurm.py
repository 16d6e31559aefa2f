"""A machine of one's own with Slurm: ranks by srun and PMIx, batch scripts, and ranks that die."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import signal

import psutil
import pytest

from hvd.core import paths
from tests.build.examples import ABORT
from tests.checkout import wait_for
from tests.ranks import PROGRAM
from tests.services import slurm_site

#: Seconds for a job of two ranks that have little to do.
LIMIT = 90.0
#: Sums for as long as it may, and leaves its process number when it has begun.
ENDLESS = """\
import os, pathlib, sys, torch, horovod.torch as hvd
hvd.init()
for step in range(10**9):
    hvd.allreduce(torch.ones(1), name="endless")
    if step == 3:
        pathlib.Path(sys.argv[1], str(hvd.rank())).write_text(str(os.getpid()))
"""

#: Prints what torch.distributed is to read.
MEETING = """\
import os
ranks, place = "rank {RANK} of {WORLD_SIZE}, {LOCAL_RANK}", "{MASTER_ADDR}:{MASTER_PORT}"
text = f"{ranks}, {place}, on {{SLURMD_NODENAME}}\\n"
print(text.format_map(os.environ), end="", flush=True)
"""


@pytest.fixture(scope="module")
def local(built_horovod, slurm):
    """The built checkout, whose site `local` is the cluster, and whose build is activated."""
    with slurm_site.local(built_horovod.checkout):
        built_horovod.hvd("activate")
        yield built_horovod


def batch(local, directory: pathlib.Path, *words: object, options=()) -> pathlib.Path:
    """The batch script that `./hvd launch` prints for a Python program on two nodes."""
    shape = ["--nodes=2", "--ranks-per-node=1", "--time=0:02:00"]
    shape += ["--output", str(directory / "output"), *options]
    output = local.checkout.hvd("launch", "local-hvd", "--batch", *shape, "--", "python", *words)
    text = output[output.index("#!") :].partition("\n  to submit it")[0]
    script = directory / "job.sh"
    script.write_text(text + "\n")
    return script


def placed(output):
    """Rank and node of each line that a program of two ranks printed."""
    return sorted(re.findall(r"rank (\d) of 2 on (\S+)", output))


def test_srun_starts_two_ranks_by_pmix(local, slurm, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    activate = local.checkout.state / "activation" / "local-hvd-pip" / "activate.sh"
    line = f". {shlex.quote(str(activate))} && "
    line += f"srun --mpi=pmix -N 2 -n 2 python {tmp_path}/program.py"
    output = slurm.run("sh", "-c", line, timeout=LIMIT, **slurm_site.ALLOWANCES)
    assert placed(output) == [("0", "n1"), ("1", "n2")], output


def test_a_batch_script_of_launch(local, slurm, tmp_path):
    """As it is printed, it needs no Spack on the nodes and runs on both of them."""
    (tmp_path / "program.py").write_text(PROGRAM)
    script = batch(local, tmp_path, tmp_path / "program.py")
    assert "spack" not in script.read_text()
    found = slurm.ended(slurm.submit(script), LIMIT)
    output = (tmp_path / "output").read_text()
    assert found["JobState"] == "COMPLETED" and found["ExitCode"] == "0:0", output
    assert placed(output) == [("0", "n1"), ("1", "n2")], output


def test_one_script_starts_horovod_and_ddp(local, slurm, tmp_path):
    examples, losses = paths.ROOT / "examples" / "pytorch", []
    # n1 is no name that this machine can resolve
    options = ["--torch", "--expand", "--env", "MASTER_ADDR=127.0.0.1"]
    # once in some hundred jobs, a rank crashes as it starts: Python says where, not UCX and MPI
    for variable in ("PYTHONFAULTHANDLER=1", "UCX_ERROR_SIGNALS=", "OMPI_MCA_opal_signal="):
        options += ["--env", variable]
    words = ["$1", "--samples", "1024", "--workers", "0", "--checkpoint", "$2"]
    script = batch(local, tmp_path, *words, options=options)
    for name in ("pytorch_mnist.py", "pytorch_mnist_ddp.py"):
        job = slurm.submit(script, examples / name, tmp_path / f"{name}.pt")
        found = slurm.ended(job, LIMIT)
        output = (tmp_path / "output").read_text()
        assert found["JobState"] == "COMPLETED" or ABORT in output, output
        losses.append(re.findall(r"^epoch \d: loss (\S+),", output, re.MULTILINE))
    horovod, ddp = losses
    assert len(horovod) == 5
    assert [float(loss) for loss in ddp] == pytest.approx([float(loss) for loss in horovod])


def test_the_ranks_of_a_job_meet_on_its_first_node(local, slurm, tmp_path):
    (tmp_path / "program.py").write_text(MEETING)
    script = batch(local, tmp_path, tmp_path / "program.py", options=["--torch"])
    job = slurm.submit(script)
    assert slurm.ended(job, LIMIT)["JobState"] == "COMPLETED"
    port = 29500 + int(job) % 1000
    printed = (tmp_path / "output").read_text()
    found = sorted(re.findall(r"rank .*", printed))
    assert found == [f"rank {rank} of 2, 0, n1:{port}, on n{rank + 1}" for rank in range(2)]


def test_a_killed_rank_fails_the_job(local, slurm, tmp_path):
    """The other rank waits for it: the job has to end all the same, and before its time limit."""
    (tmp_path / "program.py").write_text(ENDLESS)
    script = batch(local, tmp_path, tmp_path / "program.py", tmp_path)
    number = slurm.submit(script)
    files = [tmp_path / "0", tmp_path / "1"]
    wait_for(lambda: all(file.exists() for file in files), LIMIT, (tmp_path / "output").read_text)
    ranks = [int(file.read_text()) for file in files]
    assert len(slurm.steps()) > 2
    os.kill(ranks[1], signal.SIGKILL)
    found = slurm.ended(number, 30)
    assert found["JobState"] == "FAILED" and found["ExitCode"] != "0:0", found
    left = [psutil.Process(rank) for rank in ranks if psutil.pid_exists(rank)]
    assert not psutil.wait_procs([*left, *slurm.steps()], timeout=10)[1]
