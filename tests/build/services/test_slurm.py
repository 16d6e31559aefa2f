"""A machine of one's own with Slurm: ranks by srun and PMIx, batch scripts, and ranks that die."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import signal
import time

import psutil
import pytest

from tests.build import slurm_site

#: Seconds for a job of two ranks that have little to do.
LIMIT = 90.0
#: Sums on every rank, and says where.
PROGRAM = """\
import os, sys, torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(1000) * (hvd.rank() + 1), op=hvd.Sum)
assert torch.equal(total, torch.full((1000,), 3.0)), total[:3]
place = f"{os.environ['SLURMD_NODENAME']} of {os.environ['SLURM_JOB_NUM_NODES']}"
# at once: two ranks share one pipe, and a line in parts may be split
print(f"rank {hvd.rank()} of {hvd.size()} on {place}\\n", end="", flush=True)
"""
#: Sums for as long as it may, and leaves its process number when it has begun.
ENDLESS = """\
import os, pathlib, sys, torch, horovod.torch as hvd
hvd.init()
for step in range(10**9):
    hvd.allreduce(torch.ones(1), name="endless")
    if step == 3:
        pathlib.Path(sys.argv[1], str(hvd.rank())).write_text(str(os.getpid()))
"""


@pytest.fixture(scope="module")
def local(built_horovod, slurm):
    """The built checkout, whose site `local` is the cluster, and whose build is activated."""
    with slurm_site.local(built_horovod.checkout):
        done = built_horovod.checkout.hvd("activate", "local-hvd", "--engine=pip")
        assert done.returncode == 0, done.stdout
        yield built_horovod


def batch(local, directory: pathlib.Path, program: str, *arguments: str) -> pathlib.Path:
    """The batch script that `./hvd launch` prints for a program on two nodes."""
    (directory / "program.py").write_text(program)
    words = ["launch", "local-hvd", "--batch", "--nodes=2", "--ranks-per-node=1", "--time=0:02:00"]
    words += ["--output", str(directory / "output")]
    done = local.checkout.hvd(*words, "--", "python", directory / "program.py", *arguments)
    assert done.returncode == 0, done.stdout
    text = done.stdout[done.stdout.index("#!") :].partition("\n  to submit it")[0]
    script = directory / "job.sh"
    script.write_text(text + "\n")
    return script


def test_srun_starts_two_ranks_by_pmix(local, slurm, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    activate = local.checkout.root / ".hvd" / "activation" / "local-hvd-pip" / "activate.sh"
    line = f". {shlex.quote(str(activate))} && "
    line += f"srun --mpi=pmix -N 2 -n 2 python {tmp_path}/program.py"
    done = slurm.run("sh", "-c", line, timeout=LIMIT, **slurm_site.ALLOWANCES)
    assert done.returncode == 0, done.stdout
    said = sorted(re.findall(r"rank (\d) of 2 on (\S+) of 2", done.stdout))
    assert said == [("0", "n1"), ("1", "n2")], done.stdout


def test_a_batch_script_of_launch(local, slurm, tmp_path):
    """As it is printed, it needs no Spack on the nodes and runs on both of them."""
    script = batch(local, tmp_path, PROGRAM)
    assert "spack" not in script.read_text()
    found = slurm.ended(slurm.submit(script), LIMIT)
    output = (tmp_path / "output").read_text()
    assert found["JobState"] == "COMPLETED" and found["ExitCode"] == "0:0", output
    assert sorted(re.findall(r"rank (\d) of 2 on n(\d) of 2", output)) == [("0", "1"), ("1", "2")]


def test_a_killed_rank_fails_the_job(local, slurm, tmp_path):
    """The other rank waits for it: the job has to end all the same, and before its time limit."""
    script = batch(local, tmp_path, ENDLESS, str(tmp_path))
    number = slurm.submit(script)
    deadline = time.monotonic() + LIMIT
    while not (tmp_path / "0").exists() or not (tmp_path / "1").exists():
        assert time.monotonic() < deadline, (tmp_path / "output").read_text()
        time.sleep(0.2)
    ranks = [int((tmp_path / rank).read_text()) for rank in ("0", "1")]
    assert len(slurm.steps()) > 2
    os.kill(ranks[1], signal.SIGKILL)
    found = slurm.ended(number, 30)
    assert found["JobState"] == "FAILED" and found["ExitCode"] != "0:0", found
    left = [psutil.Process(rank) for rank in ranks if psutil.pid_exists(rank)]
    assert not psutil.wait_procs([*left, *slurm.steps()], timeout=10)[1]
