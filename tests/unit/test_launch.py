"""The launch lines: those of the sites' documents, word for word; and what is refused."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from hvd.cli import main as cli
from hvd.core.errors import HvdError
from hvd.launch import hosts, request
from hvd.model import site
from tests.unit.launching import TWO_NODES, launch

#: The variables of a job.
JOBS = {
    "SLURM": {"SLURM_JOB_NODELIST": TWO_NODES},
    "LSF": {"LSB_MCPU_HOSTS": "batch5 1 h49n16 42 h50n01 42"},
}
#: The job, if there is one, and the arguments of ./hvd launch; then the line up to the program.
LINES = """\
# of documents
taurus-ml-hvd --via horovodrun --hosts server[1-4] --ranks-per-node 4
    horovodrun -np 16 -H server1:4,server2:4,server3:4,server4:4
local-hvd --via horovodrun --gloo
    horovodrun --gloo -np 2
taurus-ml-hvd --nodes 4 --ranks-per-node 4
    mpirun -np 16 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH
    -mca pml ob1 -mca btl ^openib
taurus-ml-mpi-hvd --rdma --hosts server[1-4] --ranks-per-node 4
    mpirun -np 16 -H server1:4,server2:4,server3:4,server4:4 -bind-to none -map-by slot
    -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x HOROVOD_MPI_THREADS_DISABLE=1 -x PATH -mca pml ob1
SLURM perlmutter-2023-hvd --nodes 2
    srun -n 8
SLURM perlmutter-2023-hvd --nodes 2 --ranks-per-node 2
    srun -n 4
perlmutter-2023-hvd --nodes 2 --ranks-per-node 2
    srun -N 2 -n 4
SLURM perlmutter-2023-hvd
    srun -N 1 -n 4
# the document's prompt is a login node's, where there is no job to start this in
SLURM perlmutter-2023-hvd --nodes 2 --env NCCL_DEBUG=INFO --image qualis2006/tensorflow-pytorch-horovod:tf2.10_pt1.13
    NCCL_DEBUG=INFO srun --mpi=pmi2 -l -n 8 shifter --module=gpu,nccl-2.15
    --image=qualis2006/tensorflow-pytorch-horovod:tf2.10_pt1.13
stampede2-hvd --nodes 2
    mpiexec.hydra -l -ppn 1 -n 2 taskset -c 0-64,68-132,136-200,204-268 numactl -p 1
stampede2-hvd
    mpiexec.hydra -l -ppn 1 -n 1 taskset -c 0-64,68-132,136-200,204-268 numactl -p 1
summit-hvd
    jsrun -r1 -g6 -a6 -c42 -bpacked:7
summit-ddl-hvd --via ddlrun --nodes 144 --racks 8 --aisles 2
    ddlrun --nodes 18 --racks 4 --aisles 2
summit-ddl-hvd --via ddlrun
    ddlrun
taurus-ml-mpi-hvd --time 08:00:00 --allocate
    srun -N 1 --ntasks-per-node=6 -p ml --time=08:00:00 --pty bash
perlmutter-2023-hvd --nodes 2 --time 01:00:00 --account m1234_g --allocate
    salloc --nodes 2 --qos interactive --time 01:00:00 --constraint gpu --gpus-per-node=4
    --account=m1234_g
# others
frontier-hvd --nodes 2
    srun -N 2 -n 16 -c 7 --gpus-per-task=1 --gpu-bind=closest
stampede3-hvd --nodes 2
    ibrun -n 8
vista-hvd --nodes 2
    ibrun -n 2
stampede3-cpu-hvd --ranks-per-node 112
    ibrun -n 112
stampede2-hvd --via ibrun --ranks-per-node 2
    ibrun -n 2
stampede2-hvd --ranks-per-node 2
    mpiexec.hydra -l -ppn 2 -n 2 numactl -p 1
stampede2-hvd --partition normal
    mpiexec.hydra -l -ppn 1 -n 1
alpha-hvd
    srun -N 1 -n 8
capella-hvd --nodes 3
    srun -N 3 -n 12
parallelcluster-hvd --nodes 2
    mpirun -np 16 -N 8 --bind-to none -x LD_LIBRARY_PATH -x PATH -x FI_PROVIDER=efa
    -x FI_EFA_FORK_SAFE=1 -x NCCL_SOCKET_IFNAME=^docker,lo,veth
local-hvd
    mpirun -np 2
local-hvd --hosts a,b --env X=1
    mpirun -np 4 -H a:2,b:2 -x X=1
# more ranks than GPUs, where nothing forbids them
local-hvd --ranks-per-node 64
    mpirun -np 64
taurus-ml-mpi-hvd --ranks-per-node 8 --via srun
    srun -N 1 -n 8
summit-hvd --ranks-per-node 2
    jsrun -r1 -g2 -a2 -c14 -bpacked:7
summit-hvd --smpiargs=-disable_gpu_hooks
    jsrun -r1 -g6 -a6 -c42 -bpacked:7 --smpiargs=-disable_gpu_hooks
# a part of an LSF job says how many hosts
LSF summit-hvd
    jsrun -n1 -r1 -g6 -a6 -c42 -bpacked:7
LSF summit-hvd --nodes 2
    jsrun -r1 -g6 -a6 -c42 -bpacked:7
perlmutter-hvd --ask --account m1_g --queue debug --ranks-per-node 2
    srun -A m1_g -C gpu -q debug -N 1 -c 32 --ntasks-per-node=2 --gpus-per-node=2
    --gpu-bind=none --cpu-bind=cores
taurus-ml-hvd --via srun --ask --nodes 2 --ranks-per-node 1 --env NCCL_DEBUG='a b'
    NCCL_DEBUG='a b' srun -p ml -N 2 -c 7 --ntasks-per-node=1 --gres=gpu:1 --mem-per-cpu=1443
frontier-hvd --account a --time 1:00:00 --allocate
    salloc --nodes 1 --partition batch --time 1:00:00 --account=a --network=disable_rdzv_get
# a part of a node: with its memory, and so its CPUs
capella-hvd --nodes 2 --allocate
    salloc --nodes 2 --gres=gpu:4 --ntasks-per-node=4 --cpus-per-task=14 --mem-per-cpu=13803
alpha-hvd --allocate
    salloc --nodes 1 --gres=gpu:8 --ntasks-per-node=8 --cpus-per-task=5 --mem-per-cpu=20625
capella-hvd --queue q --ranks-per-node 1 --allocate
    salloc --nodes 1 --partition q --gres=gpu:1 --ntasks-per-node=1 --cpus-per-task=14
    --mem-per-cpu=13803
perlmutter-hvd --queue debug --allocate
    salloc --nodes 1 --qos debug --constraint gpu --gpus-per-node=4 --gpu-bind=none
stampede2-hvd --nodes 2 --time 1:00:00 --allocate
    idev -p flat-quadrant -N 2 -n 2 -m 60
stampede3-hvd --account a --allocate
    idev -p h100 -N 1 -n 4 -A a
# `idev -p gh-dev -N 2 -n 2 -t 1:00:00` in TACC's page; -m is in its other pages
vista-hvd --queue gh-dev --nodes 2 --time 1:00:00 --allocate
    idev -p gh-dev -N 2 -n 2 -m 60
# ALCF's page has the same options without system= and place=, which its scripts have
polaris-hvd --nodes 2 --time 1:00:00 --account a --allocate
    qsub -I -l select=2:system=polaris -l place=scatter -l filesystems=home:eagle
    -l walltime=1:00:00 -q debug -A a
summit-hvd --nodes 2 --time 2:30:01 --account a --allocate
    bsub -W 2:31 -nnodes 2 -P a -Is /bin/bash
"""  # noqa: E501
CASES = [
    block.split("\n", 1) for block in re.split(r"^(?=\S)", LINES, flags=re.M) if "\n    " in block
]


@pytest.mark.parametrize(("arguments", "line"), CASES)
def test_the_line(arguments, line, launched) -> None:
    job, *words = shlex.split(arguments)
    program = [] if "--allocate" in words else ["python", "train.py"]
    environ = JOBS.get(job, {})
    done = launched([*([] if environ else [job]), *words, "--", *program], **environ)
    assert done.status == 0, done.err
    assert done.out.count("\n") == 1
    assert shlex.split(done.out) == [*shlex.split(line), *program]


def test_what_ddlrun_says_that_it_starts(launched) -> None:
    """The document's line, without the directory of mpirun, which a module puts on PATH."""
    line = (
        "mpirun -x LSB_JOBID -x PATH -x PYTHONPATH -x LD_LIBRARY_PATH -x LSB_MCPU_HOSTS "
        "-x NCCL_LL_THRESHOLD=0 -x NCCL_TREE_THRESHOLD=0 -disable_gdr -gpu --rankfile RANKFILE "
        '-x "DDL_OPTIONS=-mode p:6x2x1x1 " -n 12 -mca plm_rsh_num_concurrent 12 '
        '-x DDL_HOST_PORT=2200 -x "DDL_HOST_LIST=g28n14:0,2,4,6,8,10;g28n15:1,3,5,7,9,11" '
    )
    options = "summit-ddl-hvd --via ddl-mpirun --hosts g28n[14-15] --rankfile RANKFILE".split()
    program = ["bash", "-c", "source conda.sh && conda activate ibm-wml-ce"]
    assert shlex.split(launched([*options, "--", *program]).out) == shlex.split(line) + program


@pytest.mark.parametrize("options", [[], ["--expand"]])
def test_words_with_blanks_and_dollars_come_through(options, launched) -> None:
    words = ["python", "a b.py", "$HOME/x", "it's"]
    out = launched(["local-hvd", *options, "--", *words]).out
    assert shlex.split(out)[3:] == words
    assert ('"$HOME/x"' in out) == bool(options)


@pytest.mark.parametrize(
    ("name", "text", "is_said"),
    [
        ("perlmutter-hvd", "export NCCL_NET='AWS Libfabric'", True),
        ("perlmutter-hvd", "--allocate", True),
        ("taurus-ml-hvd", "export", False),  # -x has it
        (
            "capella-hvd",
            "export SRUN_CPUS_PER_TASK=14",
            True,
        ),  # srun does not take it from the job
        ("stampede3-hvd", "SRUN_CPUS_PER_TASK", False),
    ],
)
def test_what_a_line_needs_is_said_beside_it(name, text, is_said, launched) -> None:
    assert (text in launched([name, "--", "a.out"]).err) == is_said


def test_an_account_that_a_job_needs_is_asked_for(launched) -> None:
    asked = "a job on perlmutter has to name an account: --account NAME"
    for printed in ("--batch", "--allocate", "--ask"):
        assert asked in launched(["perlmutter-hvd", printed, "--", "a.out"]).err
        assert asked not in launched(["perlmutter-hvd", printed, "--account=m_g", "--", "x"]).err
    assert "account" not in launched(["alpha-hvd", "--batch", "--", "a.out"]).err


def test_one_node_of_frontier_has_another_network() -> None:
    assert launch("frontier-hvd", nodes=1).fabric["NCCL_NET"] == "Socket"
    assert launch("frontier-hvd", nodes=2).fabric["NCCL_NET"] == "OFI"


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
    ("summit-hvd --run -- x", "--run: this is no job on summit", JOBS["SLURM"]),
    ("local-hvd --run -- no-such-program", "mpirun is not on PATH", {"PATH": "/none"}),
    ("perlmutter-hvd --run --batch -- x", "exclude each other", JOBS["SLURM"]),
    # nodes, racks and hosts
    ("perlmutter-hvd --nodes 3 -- x", "the job has 2", JOBS["SLURM"]),
    ("local-hvd --nodes 3 --hosts a,b -- x", "--hosts names 2"),
    ("local-hvd --nodes 2 -- x", "mpirun needs to know the 2 hosts"),
    ("taurus-ml-hvd --via horovodrun --nodes 2 -- x", "horovodrun needs to know"),
    ("taurus-ml-hvd --hosts a,b -- x", "--hosts: a is not a node of the job", JOBS["SLURM"]),
    ("perlmutter-hvd --hosts nid001140 -- x", "--hosts: srun", JOBS["SLURM"]),
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
    ("summit-hvd --nodes 0 -- x", "--nodes"),
    ("summit-hvd --ranks-per-node -1 -- x", "--ranks-per-node"),
    ("summit-hvd --aisles two -- x", "--aisles"),
]


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_requests(case, launched) -> None:
    options, said, environ = (*case, {})[:3]
    done = launched(shlex.split(options), **environ)
    assert done.status == cli.USAGE
    assert done.out == ""
    assert said in done.err


def test_a_build_without_gpus_has_no_limit_on_a_node_with_them() -> None:
    summit = site.load("summit")
    use = dataclasses.replace(summit.environments["summit-hvd"], operations="cpu")
    changed = dataclasses.replace(summit, environments={"summit-hvd": use})
    request.check(dataclasses.replace(launch("summit-hvd", ranks_per_node=42), site=changed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server[1-4]", ["server1", "server2", "server3", "server4"]),
        ("nid[001140-001141,2]-hsn0", ["nid2-hsn0", "nid001140-hsn0", "nid001141-hsn0"]),
        ("a,b,a", ["a", "b"]),
        ("one.example.org", ["one.example.org"]),
        *((text, None) for text in ("", "server[1-", "a b", "server1:4", "@all", "a,,@b")),
    ],
)
def test_lists_of_hosts(text, expected) -> None:
    if expected:
        assert sorted(hosts.named(text)) == sorted(expected)
    else:
        with pytest.raises(HvdError, match="--hosts"):
            hosts.named(text)


MCPU = {"LSB_MCPU_HOSTS": "batch5 1 h49n16 42 h50n01 42"}
SUMMIT = site.load("summit").partitions["batch"]
NO_LAUNCH_NODE = dataclasses.replace(SUMMIT, lsf=dataclasses.replace(SUMMIT.lsf, launch_slots=0))


@pytest.mark.parametrize(
    ("scheduler", "partition", "environ", "expected"),
    [
        ("slurm", SUMMIT, {"SLURM_JOB_NODELIST": "a[01-02]"}, ["a01", "a02"]),
        ("slurm", SUMMIT, {}, None),
        ("slurm", SUMMIT, {"SLURM_JOB_NODELIST": "nid[1-"}, HvdError),
        ("none", SUMMIT, {"SLURM_JOB_NODELIST": "a"}, None),
        ("lsf", SUMMIT, MCPU, ["h49n16", "h50n01"]),
        ("lsf", NO_LAUNCH_NODE, MCPU, ["batch5", "h49n16", "h50n01"]),
        ("lsf", SUMMIT, {**MCPU, "LSB_DJOB_HOSTFILE": "batch5\nh2\nh2\nh1\n"}, ["h2", "h1"]),
        ("lsf", SUMMIT, {}, None),
        ("lsf", SUMMIT, {"LSB_DJOB_HOSTFILE": "/no/file"}, HvdError),
        ("pbs", SUMMIT, {"PBS_NODEFILE": "x1.hsn\nx1.hsn\nx7.hsn\n"}, ["x1.hsn", "x7.hsn"]),
        ("pbs", SUMMIT, {}, None),
        ("pbs", SUMMIT, {"PBS_NODEFILE": "/no/file"}, HvdError),
    ],
)
def test_the_hosts_of_a_job(scheduler, partition, environ, expected, tmp_path) -> None:
    for name, value in environ.items():
        if "\n" in value:
            (tmp_path / "hosts").write_text(value)
            environ = {**environ, name: str(tmp_path / "hosts")}
    if expected is HvdError:
        with pytest.raises(HvdError, match=next(iter(environ))):
            hosts.of_job(scheduler, partition, environ)
    else:
        assert hosts.of_job(scheduler, partition, environ) == expected
