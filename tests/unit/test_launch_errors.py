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
#: Arguments, what is said, and the variables of a job if there is one.
IMPOSSIBLE = [
    # ranks and GPUs
    ("summit-hvd --ranks-per-node 7 -- x", "7 ranks on a node with 6 GPUs"),
    ("summit-ddl-hvd --ranks-per-node 12 -- x", "EXCLUSIVE_PROCESS"),
    ("perlmutter-hvd --ranks-per-node 5 -- x", "5 ranks on a node with 4 GPUs: NCCL"),
    ("frontier-hvd --ranks-per-node 16 --batch -- x", "RCCL"),
    # launch methods
    ("summit-hvd --gloo -- x", "--gloo: jsrun"),
    ("perlmutter-hvd --gloo -- x", "--gloo: srun"),
    ("taurus-ml-hvd --via horovodrun --gloo --hosts a -- x", "--gloo: taurus-ml-hvd is built"),
    ("perlmutter-hvd --via jsrun -- x", "--via jsrun: not for Slurm of perlmutter"),
    ("summit-hvd --via srun -- x", "--via srun: not for LSF of summit"),
    ("local-hvd --via srun -- x", "--via srun: not for"),
    ("summit-hvd --via mpirun -- x", "--via mpirun: summit: jobs run on a launch node"),
    ("alpha-hvd --via mpiexec.hydra -- x", "--via mpiexec.hydra: not for"),
    ("summit-hvd --via ddlrun -- x", "IBM DDL"),
    ("local-hvd --via mpirum -- x", "did you mean 'mpirun'?"),
    ("summit-ddl-hvd --via ddlrun --ranks-per-node 2 -- x", "--ranks-per-node"),
    ("summit-ddl-hvd --via ddl-mpirun -- x", "--rankfile"),
    # options of another method
    ("perlmutter-hvd --rdma -- x", "--rdma: srun on perlmutter"),
    ("alpha-hvd --image a -- x", "--image: srun on alpha"),
    ("alpha-hvd --smpiargs a -- x", "--smpiargs"),
    ("alpha-hvd --rankfile a -- x", "--rankfile"),
    ("local-hvd --ask -- x", "--ask: mpirun"),
    # scheduler and job
    ("local-hvd --batch -- x", "local has no scheduler"),
    ("local-hvd --allocate", "interactive jobs are not configured for local"),
    ("perlmutter-hvd --run -- x", "--run: this is no job on perlmutter"),
    ("summit-hvd --run -- x", "--run: this is no job on summit", JOB),
    ("local-hvd --run -- no-such-program", "mpirun is not on PATH", {"PATH": "/none"}),
    ("perlmutter-hvd --run --batch -- x", "exclude each other", JOB),
    # nodes, racks and hosts
    ("perlmutter-hvd --nodes 3 -- x", "the job has 2", JOB),
    ("local-hvd --nodes 3 --hosts a,b -- x", "--hosts names 2"),
    ("local-hvd --nodes 2 -- x", "mpirun needs to know the 2 hosts"),
    ("taurus-ml-hvd --via horovodrun --nodes 2 -- x", "horovodrun needs to know"),
    ("taurus-ml-hvd --hosts a,b -- x", "--hosts: a is not a node of the job", JOB),
    ("perlmutter-hvd --hosts nid001140 -- x", "--hosts: srun", JOB),
    ("local-hvd --hosts a[1- -- x", "--hosts: 'a[1-'"),
    ("perlmutter-hvd --racks 1 -- x", "--racks"),
    ("summit-hvd --aisles 1 -- x", "--aisles"),
    ("summit-hvd --nodes 19 --racks 1 -- x", "19 nodes"),
    ("summit-ddl-hvd --via ddlrun --nodes 3 --racks 2 -- x", "3 nodes"),
    ("alpha-hvd --partition alhpa -- x", "did you mean 'alpha'?"),
    # values
    ("summit-hvd --time 0:10 -- x", "--time: '0:10'"),
    ("summit-hvd --account 'a b' -- x", "--account: 'a b'"),
    ("summit-hvd --job-name 'a\nb' -- x", "--job-name"),
    ("perlmutter-hvd --account m1 -- x", "accounts of jobs in gpu of perlmutter end in _g"),
    ("local-hvd --env A -- x", "--env: 'A'"),
    ("local-hvd --env 'A B=1' -- x", "--env: 'A B'"),
    ("local-hvd", "no program to start"),
    ("perlmutter-hvd --batch --", "no program to start"),
    ("moon-hvd -- x", "'moon-hvd'"),
]


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_requests(case, launched) -> None:
    options, said, environ = (*case, {})[:3]
    done = launched(shlex.split(options), **environ)
    assert done.status == cli.USAGE
    assert done.out == ""
    assert said in done.err
    assert done.err.count("error:") == 1
    assert "hint: " in done.err


@pytest.mark.parametrize(
    "option", ["--nodes 0", "--nodes two", "--ranks-per-node -1", "--racks 0", "--aisles -2"]
)
def test_what_is_no_positive_number(option, launched) -> None:
    done = launched(f"summit-hvd {option} -- x".split())
    assert done.status == cli.USAGE and option.split()[0] in done.err


def test_a_build_without_gpus_has_no_limit_on_a_node_with_them() -> None:
    summit = site.load("summit")
    use = dataclasses.replace(summit.environments["summit-hvd"], operations="cpu")
    changed = dataclasses.replace(summit, environments={"summit-hvd": use})
    request.check(dataclasses.replace(launch("summit-hvd", ranks_per_node=42), site=changed))
