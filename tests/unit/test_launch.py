"""The launch lines, word for word; what is said beside them; and what is refused."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from hvd.cli import main as cli
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import hosts, methods, request
from hvd.model import site
from tests.unit.launching import TWO_NODES, launch

#: The variables of a job.
JOBS = {
    "SLURM": {"SLURM_JOB_NODELIST": TWO_NODES},
    "LSF": {"LSB_MCPU_HOSTS": "batch5 1 h49n16 42 h50n01 42"},
}
#: The job, if there is one, and the arguments of ./hvd launch; then the line up to the program,
#: which with --batch is the script's last one.  Those of docs/seeds.yaml are in test_seeds.py.
LINES = """\
# a job has the nodes and ranks already
local-hvd --via horovodrun --gloo
    horovodrun --gloo -np 2
SLURM perlmutter-2023-hvd --nodes 2
    srun -n 8
SLURM perlmutter-2023-hvd --nodes 2 --ranks-per-node 2
    srun -n 4
SLURM perlmutter-2023-hvd
    srun -N 1 -n 4
SLURM perlmutter-2023-hvd --nodes 2 --env NCCL_DEBUG=INFO --image a/b:1
    NCCL_DEBUG=INFO srun --mpi=pmi2 -l -n 8 shifter --module=gpu,nccl-2.15 --image=a/b:1
perlmutter-2023-hvd --nodes 2 --image a/b:1 --batch
    srun --mpi=pmi2 -l shifter --module=gpu,nccl-2.15 --image=a/b:1
summit-ddl-hvd --via ddlrun
    ddlrun
taurus-ml-hvd --nodes 4 --ranks-per-node 4
    mpirun -np 16 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca
    pml ob1 -mca btl '^openib'
# other sites, partitions and launchers
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
local-hvd
    mpirun -np 2
local-hvd --hosts a,b --env X=1
    mpirun -np 4 -H a:2,b:2 -x X=1
# AWS: nccl-tests-ami.sbatch and nccl-tests-container.sbatch of awsome-distributed-ai at 95b939c,
# whose LD_LIBRARY_PATH is for a program outside of Spack
parallelcluster-hvd --nodes 2
    mpirun -np 16 -N 8 --bind-to none -x LD_LIBRARY_PATH -x PATH -x FI_PROVIDER=efa -x
    FI_EFA_FORK_SAFE=1 -x 'NCCL_SOCKET_IFNAME=^docker,lo,veth'
parallelcluster-hvd --nodes 2 --via srun --batch
    srun --mpi=pmix --cpu-bind=none
# using-gpus.md of argonne-lcf/user-guides at 7d04a3f, with the numbers of its variables
polaris-hvd --nodes 2 --batch
    mpiexec -n 8 --ppn 4 --depth=8 --cpu-bind depth {gpu_rank} CUDA_VISIBLE_DEVICES
    PMI_LOCAL_RANK 3,2,1,0
# horovodrun has to know its hosts, which ./hvd launch finds in the job
taurus-ml-hvd --via horovodrun --nodes 2 --env A='b c' --time 1:00:00 --batch
    {root}/hvd launch taurus-ml-hvd --partition ml --nodes 2 --ranks-per-node 6 --via
    horovodrun --env 'A=b c' --run --
taurus-ml-hvd --via horovodrun --hosts a,b --batch
    horovodrun -np 12 -H a:6,b:6
taurus-ml-hvd --via horovodrun --torch --batch
    {root}/hvd launch taurus-ml-hvd --partition ml --nodes 1 --ranks-per-node 6 --via
    horovodrun --torch --run --
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
# torch.distributed's ranks meet on the first host; the user's own variable comes last
local-hvd --torch
    MASTER_ADDR=localhost mpirun -np 2 -x MASTER_ADDR {torch_rank}
local-hvd --torch --hosts a,b
    MASTER_ADDR=a mpirun -np 4 -H a:2,b:2 -x MASTER_ADDR {torch_rank}
local-hvd --torch --env MASTER_ADDR=x
    MASTER_ADDR=localhost mpirun -np 2 -x MASTER_ADDR=x {torch_rank}
SLURM perlmutter-hvd --torch --nodes 2 --env MASTER_ADDR=x
    MASTER_ADDR=nid001140 MASTER_ADDR=x srun -n 8 {torch_rank}
perlmutter-hvd --torch
    MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) srun -N 1 -n 4
    {torch_rank}
perlmutter-hvd --torch --nodes 2 --batch
    srun {torch_rank}
# nodes and the program in one
perlmutter-hvd --ask --account m1_g --queue debug --ranks-per-node 2
    srun -A m1_g -C gpu -q debug -N 1 -c 32 --ntasks-per-node=2 --gpus-per-node=2
    --gpu-bind=none --cpu-bind=cores
frontier-hvd --ask --account a --nodes 2
    srun -A a -p batch -N 2 --ntasks-per-node=8 --network=disable_rdzv_get -c 7 --gpus-per-task=1
    --gpu-bind=closest
taurus-ml-hvd --via srun --ask --nodes 2 --ranks-per-node 1 --env NCCL_DEBUG='a b'
    NCCL_DEBUG='a b' srun -p ml -N 2 -c 7 --ntasks-per-node=1 --gres=gpu:1 --mem-per-cpu=1443
# nodes
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
    qsub -I -l select=2:system=polaris -l place=scatter -l filesystems=home:eagle -l
    walltime=1:00:00 -q debug -A a
summit-hvd --nodes 2 --time 2:30:01 --account a --allocate
    bsub -W 2:31 -nnodes 2 -P a -Is /bin/bash
"""
CASES = [
    block.split("\n", 1) for block in re.split(r"^(?=\S)", LINES, flags=re.M) if "\n    " in block
]
PLACES = {"root": paths.ROOT, "gpu_rank": methods.GPU_RANK, "torch_rank": methods.TORCH_RANK}


@pytest.mark.parametrize(("arguments", "line"), CASES)
def test_the_line(arguments, line, launched) -> None:
    job, *words = shlex.split(arguments)
    program = [] if "--allocate" in words else ["python", "train.py"]
    environ = JOBS.get(job, {})
    done = launched([*([] if environ else [job]), *words, "--", *program], **environ)
    assert done.status == 0, done.err
    found = done.out.splitlines()
    assert found[-1] == " ".join([*line.format(**PLACES).split(), *program])
    assert len(found) == 1 or "--batch" in words


@pytest.mark.parametrize("options", [[], ["--expand"]])
def test_words_with_blanks_and_dollars_come_through(options, launched) -> None:
    words = ["python", "a b.py", "$HOME/x", "it's"]
    out = launched(["local-hvd", *options, "--", *words]).out
    assert shlex.split(out)[3:] == words
    assert ('"$HOME/x"' in out) == bool(options)


NEEDS_ACCOUNT = "a job on perlmutter has to name an account: --account NAME"


@pytest.mark.parametrize(
    ("options", "text", "is_said"),
    [
        ("perlmutter-hvd", "\n  export NCCL_NET='AWS Libfabric'\n", True),
        ("perlmutter-hvd", "--allocate", True),
        ("taurus-ml-hvd", "export", False),  # -x has it
        ("capella-hvd", "export SRUN_CPUS_PER_TASK=14", True),  # srun takes none from the job
        ("stampede3-hvd", "SRUN_CPUS_PER_TASK", False),
        *(
            (f"perlmutter-hvd --{way}", NEEDS_ACCOUNT, True)
            for way in ("batch", "allocate", "ask")
        ),
        ("perlmutter-hvd --batch --account=m_g", NEEDS_ACCOUNT, False),
        ("alpha-hvd --batch", "account", False),
        ("alpha-hvd --batch", "has not been built here: ./hvd build alpha-hvd", True),
        ("alpha-hvd --batch --setup :", "has not been built here", False),
    ],
)
def test_what_is_said_beside_a_line(options, text, is_said, launched) -> None:
    assert (text in launched([*options.split(), "--", "a.out"]).err) == is_said


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
    ("perlmutter-hvd --ask --torch -- x", "--ask: --torch needs the host"),
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
    ("alpha-hvd --partition alhpa -- x", "use one of alpha"),
    # values
    ("summit-hvd --time 0:10 -- x", "use H:MM:SS, for example 0:10:00"),
    ("summit-hvd --account 'a b' -- x", "--account: 'a b'"),
    ("summit-hvd --job-name 'a\nb' -- x", "--job-name"),
    ("perlmutter-hvd --batch --queue 'q;x' -- x", "--queue: 'q;x' has a ';'"),
    ("perlmutter-hvd --allocate --account '$(x)_g'", "--account: '$(x)_g' has a '$'"),
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


SUMMIT = site.load("summit").partitions["batch"]
NO_LAUNCH_NODE = dataclasses.replace(SUMMIT, lsf=dataclasses.replace(SUMMIT.lsf, launch_slots=0))
SLURM, LSF = JOBS["SLURM"], JOBS["LSF"]


@pytest.mark.parametrize(
    ("scheduler", "partition", "environ", "expected"),
    [
        ("slurm", SUMMIT, SLURM, ["nid001140", "nid001141"]),
        ("none", SUMMIT, SLURM, None),
        ("lsf", SUMMIT, LSF, ["h49n16", "h50n01"]),
        ("lsf", NO_LAUNCH_NODE, LSF, ["batch5", "h49n16", "h50n01"]),
        ("lsf", SUMMIT, {**LSF, "LSB_DJOB_HOSTFILE": "batch5\nh2\nh2\nh1\n"}, ["h2", "h1"]),
        ("pbs", SUMMIT, {"PBS_NODEFILE": "x1.hsn\nx1.hsn\nx7.hsn\n"}, ["x1.hsn", "x7.hsn"]),
        *((scheduler, SUMMIT, {}, None) for scheduler in ("slurm", "lsf", "pbs")),
        ("slurm", SUMMIT, {"SLURM_JOB_NODELIST": "nid[1-"}, HvdError),
        ("lsf", SUMMIT, {"LSB_DJOB_HOSTFILE": "/no/file"}, HvdError),
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
