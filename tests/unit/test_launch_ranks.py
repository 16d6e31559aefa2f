"""What starts on each rank: torch-rank and gpu-rank, and the program by ./hvd launch --run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
from typing import Dict

import pytest

from hvd.core import paths
from hvd.launch import batch, methods, start
from tests.unit.launching import TWO_NODES, launch, stand_in

RANK = str(methods.TORCH_RANK)
SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
#: What launchers set on rank 5 of 8, which is the second one on its node.
LAUNCHERS = {
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MVAPICH2": ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "PALS": ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


def rank(**variables: str) -> subprocess.CompletedProcess:
    """``torch-rank`` in front of a program that prints what it is given."""
    show = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK, $MASTER_ADDR:$MASTER_PORT, $*"'
    command = [RANK, "sh", "-c", show, "sh", "a b", "$c"]
    environ = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_has_ranks(launcher) -> None:
    given = dict(zip(LAUNCHERS[launcher], ("5", "8", "1")))
    # a job's own variables are in the way of none of them
    done = rank(MASTER_ADDR="n1", **{**SLURM, **given})
    assert (done.stderr, done.stdout) == ("", "5 of 8, 1, n1:29500, a b $c\n")


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({"SLURM_JOB_ID": "4711042"}, "29542"),
        ({"LSB_JOBID": "77"}, "29577"),
        ({"PBS_JOBID": "4711077.polaris-pbs"}, "29577"),
        ({"MASTER_PORT": "1234", "SLURM_JOB_ID": "1"}, "1234"),
    ],
)
def test_jobs_that_share_a_node_have_ports_of_their_own(variables, port) -> None:
    assert f"n1:{port}," in rank(MASTER_ADDR="n1", **SLURM, **variables).stdout


@pytest.mark.parametrize(
    ("variables", "said"),
    [({"MASTER_ADDR": "n1"}, "no launcher has set a rank"), (SLURM, "MASTER_ADDR")],
)
def test_what_is_missing_is_said(variables, said) -> None:
    done = rank(**variables)
    assert done.returncode != 0 and not done.stdout
    assert "torch-rank: " in done.stderr and said in done.stderr


@pytest.mark.parametrize(
    ("name", "environ", "host"),
    [
        ("perlmutter-hvd", {"SLURM_JOB_NODELIST": "nid[1-2]"}, "nid1"),
        # the launch node is left out
        ("summit-hvd", {"LSB_DJOB_HOSTFILE": "hosts"}, "h49n16"),
    ],
)
def test_a_script_asks_for_the_first_host_of_its_job(name, environ, host, tmp_path) -> None:
    stand_in(tmp_path, "scontrol", 'test "$3" = "nid[1-2]" && printf "nid1\\nnid2\\n"')
    (tmp_path / "hosts").write_text("batch5\nh49n16\nh49n16\nh50n01\nh50n01\n")
    script = batch.script(launch(name, nodes=2, torch=True, program=("x",)))
    (line,) = [each for each in script.splitlines() if "MASTER_ADDR" in each]
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environ}
    words = ["bash", "-c", f"{line}\necho $MASTER_ADDR"]
    assert subprocess.check_output(words, env=environ, cwd=tmp_path, text=True) == f"{host}\n"


def test_run_sets_the_host() -> None:
    request = launch("perlmutter-hvd", nodes=2, torch=True, job=("nid1", "nid2"))
    assert start.environment(request, {})["MASTER_ADDR"] == "nid1"
    assert start.environment(request, {"MASTER_ADDR": "mine"})["MASTER_ADDR"] == "mine"
    other = launch("perlmutter-hvd", nodes=2, job=("nid1", "nid2"))
    assert "MASTER_ADDR" not in start.environment(other, {})


@pytest.mark.parametrize(
    ("local_rank", "gpu"), [*enumerate("3210321"), (None, None), ("", None), ("x", None)]
)
def test_a_rank_has_the_gpu_of_its_place(local_rank, gpu) -> None:
    """As `$((num_gpus - 1 - PMI_LOCAL_RANK % num_gpus))` of set_affinity_gpu_polaris.sh."""
    command = [methods.GPU_RANK, "CUDA_VISIBLE_DEVICES", "PMI_LOCAL_RANK", "3,2,1,0"]
    command += ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES, $*"', "sh", "a b", "*"]
    environ = {"PATH": os.environ["PATH"]}
    if local_rank is not None:
        environ["PMI_LOCAL_RANK"] = str(local_rank)
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if gpu:
        assert (done.stderr, done.stdout) == ("", f"{gpu}, a b *\n")
    else:
        assert done.returncode == 2 and "gpu-rank: PMI_LOCAL_RANK" in done.stderr


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> Dict[str, str]:
    """The environment of a shell with launchers on PATH that note how they were started."""
    for name in ("mpirun", "srun"):
        stand_in(tmp_path, name, 'eval "$STAND_IN"')
    return {
        **{name: os.environ[name] for name in os.environ if not name.startswith("SLURM_")},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(paths.SOURCE),
    }


def run_launch(arguments, environ) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hvd", "launch", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_its_status_is_the_programs(environ, tmp_path) -> None:
    environ["STAND_IN"] = "echo out $A; echo err >&2; exit 3"
    done = run_launch(
        ["local-hvd", "--run", "--env", "A=b c", "--", "python", "a b.py", "$A"], environ
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out b c\n", "err\n")
    call = (tmp_path / "calls").read_text()
    assert call == "mpirun|-np|2|-x|A=b c|python|a b.py|$A|||none\n"


def test_a_signal_is_the_programs(environ) -> None:
    environ["STAND_IN"] = "kill -TERM $$"
    assert run_launch(["local-hvd", "--run", "--", "x"], environ).returncode == -signal.SIGTERM


def test_in_a_job_it_has_the_fabrics_variables(environ, tmp_path) -> None:
    environ["SLURM_JOB_NODELIST"] = TWO_NODES
    done = run_launch(["perlmutter-hvd", "--nodes", "2", "--run", "--", "python", "x.py"], environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text() == "srun|-n|8|python|x.py|AWS Libfabric||none\n"


@pytest.mark.parametrize(
    "callers", [{}, {"PYTHONPATH": "/view", "PYTHONNOUSERSITE": ""}, {"PYTHONPATH": "/view"}]
)
def test_it_has_the_callers_python_path(callers) -> None:
    """And not what ./hvd sets for itself."""
    ours = {"PYTHONPATH": "ci", "PYTHONNOUSERSITE": "1", "HOME": "/h"}
    kept = {f"{start.KEPT}{name}": value for name, value in callers.items()}
    found = start.environment(launch("local-hvd"), {**ours, **kept})
    assert found == {"HOME": "/h", **callers}


def test_the_script_hvd_keeps_the_callers_python_path(monkeypatch) -> None:
    """It is what changes them."""
    loader = importlib.machinery.SourceFileLoader("hvd_script", str(paths.ROOT / "hvd"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("hvd_script", loader))
    loader.exec_module(script)
    monkeypatch.setattr(script, "prepare", lambda files: None)
    monkeypatch.setenv("PYTHONPATH", "/view")
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    started = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    script.main()
    environ = started[0][2]
    assert environ["PYTHONPATH"] == str(paths.SOURCE)
    kept = start.environment(launch("local-hvd"), environ)
    assert kept["PYTHONPATH"] == "/view"
    assert not [name for name in kept if name.startswith(start.KEPT)]
    assert "PYTHONNOUSERSITE" not in kept
