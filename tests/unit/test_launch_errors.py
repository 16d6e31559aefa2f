"""Impossible requests: each is one error with a hint, and status 2."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from hvd.cli import main as cli
from hvd.launch import request
from hvd.model import site
from tests.unit.launching import TWO_NODES, launch

JOB = {"SLURM_JOB_NODELIST": TWO_NODES}
IMPOSSIBLE = [
    # ranks and GPUs
    ("summit-hvd --ranks-per-node 7 -- x", "7 ranks on a node with 6 GPUs: Summit's GPUs", {}),
    ("summit-ddl-hvd --ranks-per-node 12 -- x", "EXCLUSIVE_PROCESS", {}),
    ("perlmutter-hvd --ranks-per-node 5 -- x", "5 ranks on a node with 4 GPUs: NCCL", {}),
    ("frontier-hvd --ranks-per-node 16 --batch -- x", "RCCL cannot give a GPU to two ranks", {}),
    # launch methods
    ("summit-hvd --gloo -- x", "--gloo: jsrun starts MPI's ranks", {}),
    ("summit-hvd --via jsrun --gloo -- x", "--gloo: jsrun starts MPI's ranks", {}),
    ("perlmutter-hvd --gloo -- x", "--gloo: srun", {}),
    ("perlmutter-hvd --via jsrun -- x", "jsrun is for another kind of machine", {}),
    ("stampede3-hvd --via ddlrun -- x", "stampede3 has Slurm", {}),
    ("summit-hvd --via srun -- x", "summit has LSF", {}),
    ("local-hvd --via srun -- x", "local has no scheduler", {}),
    ("summit-hvd --via mpirun -- x", "mpirun on summit: jobs run on a launch node", {}),
    ("alpha-hvd --via mpiexec.hydra -- x", "alpha: the site does not have it", {}),
    ("summit-hvd --via ddlrun -- x", "IBM DDL, which summit-hvd is without", {}),
    ("local-hvd --via mpirum -- x", "no launch method is called 'mpirum'", {}),
    ("summit-ddl-hvd --via ddlrun --ranks-per-node 2 -- x", "a rank on every GPU", {}),
    ("summit-ddl-hvd --via ddl-mpirun -- x", "ddl-mpirun needs the hosts and the file", {}),
    # options of another method
    ("perlmutter-hvd --rdma -- x", "--rdma: srun on perlmutter", {}),
    ("alpha-hvd --image a -- x", "--image: alpha starts no containers", {}),
    ("alpha-hvd --smpiargs a -- x", "--smpiargs is an option of jsrun", {}),
    ("alpha-hvd --rankfile a -- x", "--rankfile is an option of ddl-mpirun", {}),
    ("local-hvd --ask -- x", "--ask: mpirun cannot ask for nodes", {}),
    # scheduler and job
    ("local-hvd --batch -- x", "local has no scheduler that takes a batch script", {}),
    ("local-hvd --allocate", "no command is known", {}),
    ("perlmutter-hvd --run -- x", "--run: this is no job on perlmutter", {}),
    ("summit-hvd --run -- x", "--run: this is no job on summit", JOB),
    ("local-hvd --run -- no-such-program-of-ours", "mpirun is not on PATH", {"PATH": "/none"}),
    ("perlmutter-hvd --run --batch -- x", "exclude each other", JOB),
    # nodes, racks and hosts
    ("perlmutter-hvd --nodes 3 -- x", "3 nodes are asked for, and the job has 2", JOB),
    ("local-hvd --nodes 3 --hosts a,b -- x", "--hosts names 2", {}),
    ("local-hvd --nodes 2 -- x", "mpirun needs to know the 2 hosts", {}),
    ("taurus-ml-hvd --via horovodrun --nodes 2 -- x", "horovodrun needs to know", {}),
    ("taurus-ml-hvd --hosts a,b -- x", "--hosts: a is not a node of the job", JOB),
    ("perlmutter-hvd --hosts nid001140 -- x", "--hosts: srun takes its hosts from the job", JOB),
    ("local-hvd --hosts a[1- -- x", "--hosts: 'a[1-'", {}),
    ("perlmutter-hvd --racks 1 -- x", "perlmutter has no racks to ask for", {}),
    ("summit-hvd --aisles 1 -- x", "--aisles needs the number of racks", {}),
    ("summit-hvd --nodes 19 --racks 1 -- x", "19 nodes are not on 1 racks of 18", {}),
    ("summit-ddl-hvd --via ddlrun --nodes 3 --racks 2 -- x", "3 nodes are not the same", {}),
    ("alpha-hvd --partition alhpa -- x", "--partition: alpha has none called 'alhpa'", {}),
    # values
    ("local-hvd --nodes 0 -- x", "--nodes: 0 is not a positive number", {}),
    ("local-hvd --ranks-per-node -1 -- x", "--ranks-per-node: -1 is not a positive number", {}),
    ("summit-hvd --racks 0 -- x", "--racks: 0 is not a positive number", {}),
    ("summit-hvd --aisles -2 -- x", "--aisles: -2 is not a positive number", {}),
    ("summit-hvd --time 0:10 -- x", "--time: '0:10' is not hours, minutes and seconds", {}),
    ("summit-hvd --account 'a b' -- x", "--account: 'a b' has blanks", {}),
    ("summit-hvd --job-name 'a\nb' -- x", "--job-name", {}),
    ("local-hvd --env A -- x", "--env: 'A' gives no value", {}),
    ("local-hvd --env 'A B=1' -- x", "--env: 'A B' is not the name of a variable", {}),
    ("local-hvd", "no program to start", {}),
    ("perlmutter-hvd --batch --", "no program to start", {}),
    ("moon-hvd -- x", "no environment is called 'moon-hvd'", {}),
]


@pytest.mark.parametrize(("options", "message", "environ"), IMPOSSIBLE)
def test_impossible_requests(options, message, environ, launched) -> None:
    done = launched(shlex.split(options), **environ)
    assert done.status == cli.USAGE
    assert done.out == ""
    assert message in done.err
    assert done.err.count("error:") == 1
    assert "hint: " in done.err


def test_a_near_miss_is_named(launched) -> None:
    assert "did you mean 'mpirun'?" in launched("local-hvd --via mpirum -- x".split()).err
    assert "did you mean 'alpha'?" in launched("alpha-hvd --partition alhpa -- x".split()).err


@pytest.mark.parametrize(
    "options",
    [
        "local-hvd --ranks-per-node 64 -- x",
        "stampede3-cpu-hvd --ranks-per-node 112 -- x",
        # GPU-aware MPI shares GPUs between ranks
        "taurus-ml-mpi-hvd --ranks-per-node 12 -- x",
    ],
)
def test_more_ranks_where_nothing_forbids_them(options, launched) -> None:
    assert launched(options.split()).status == 0


def test_a_number_that_is_none(launched) -> None:
    done = launched("local-hvd --nodes two -- x".split())
    assert done.status == cli.USAGE and "--nodes" in done.err


def test_a_build_without_gpus_has_no_limit_on_a_node_with_them() -> None:
    summit = site.load("summit")
    use = dataclasses.replace(summit.environments["summit-hvd"], operations="cpu")
    changed = dataclasses.replace(summit, environments={"summit-hvd": use})
    request.check(dataclasses.replace(launch("summit-hvd", ranks_per_node=42), site=changed))
