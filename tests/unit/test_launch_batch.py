"""Batch scripts: those of the documents, the schedulers' options, and that they work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.launch import batch
from hvd.model import built, environment, site
from tests import builds
from tests.unit.launching import launch, stand_in

#: From the man page of sbatch; those that take no value or only have a long form are left out.
SBATCH = {
    *("-A", "-c", "-C", "-d", "-D", "-e", "-J", "-n", "-N", "-o", "-p", "-q", "-S", "-t", "-w"),
    *("--account", "--constraint", "--cpus-per-task", "--error", "--gpus-per-node", "--gres"),
    *("--gpu-bind", "--job-name", "--mem", "--mem-per-cpu", "--network", "--nodes", "--ntasks"),
    *("--ntasks-per-node", "--output", "--partition", "--qos", "--time", "--exclusive"),
    *("--mem-per-gpu", "--threads-per-core", "--wait-all-nodes"),
}
BSUB = {"-P", "-W", "-csm", "-n", "-nnodes", "-R", "-q", "-J", "-o", "-e"}
QSUB = {"-A", "-q", "-l", "-N", "-o", "-e"}
OPTIONS = {"SBATCH": SBATCH, "BSUB": BSUB, "PBS": QSUB}

#: Scripts of documents of 2023, with what is only in ours: the variables, and the end of a job of
#: which a rank hangs.
SCRIPTS = {
    "perlmutter-2023-hvd --nodes 2 --account dasrepo_g --time 2:00:00 --output %x_%j.out "
    "--error %x_%j.err --setup 'source ~/.bashrc' --setup 'conda activate horovod'": """\
#!/bin/bash
#SBATCH -A dasrepo_g
#SBATCH -C gpu
#SBATCH -q regular
#SBATCH -t 2:00:00
#SBATCH -N 2
#SBATCH -c 32
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH -o %x_%j.out
#SBATCH -e %x_%j.err

export SLURM_KILL_BAD_EXIT=1
export SRUN_CPUS_PER_TASK=32
export SLURM_CPU_BIND=cores
export MPICH_GPU_SUPPORT_ENABLED=0
export NCCL_NET='AWS Libfabric'
export NCCL_NET_GDR_LEVEL=PHB
export NCCL_CROSS_NIC=1
export NCCL_SOCKET_IFNAME=hsn
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RDZV_GET_MIN=0
export FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=16777216

module load cudnn/8.3.2 nccl/2.15.5-ofi evp-patch
source ~/.bashrc
conda activate horovod

{stalled}

srun python train.py "$CONDA_PREFIX/a"
""",
    "summit-ddl-hvd --via ddlrun --nodes 144 --racks 8 --aisles 2 --time 1:00:00 "
    "--account '<PROJECT>' --job-name '<PROJECT>' --output /ccs/home/user/job%J.out "
    "--error /ccs/home/user/job%J.out --module ibm-wml-ce/1.6.2-2 --setup :": """\
#!/bin/bash
#BSUB -P <PROJECT>
#BSUB -W 1:00
#BSUB -csm y
#BSUB -n 6049
#BSUB -R "1*{select[((LN)&&(type==any))]order[r15s:pg]span[hosts=1]cu[type=rack:pref=config]}+6048*{select[((CN)&&(type==any))]order[r15s:pg]span[ptile=42]cu[type=rack:maxcus=8]}"
#BSUB -q batch
#BSUB -J <PROJECT>
#BSUB -o /ccs/home/user/job%J.out
#BSUB -e /ccs/home/user/job%J.out

export NCCL_LL_THRESHOLD=0
export NCCL_TREE_THRESHOLD=0

module load ibm-wml-ce/1.6.2-2
:

{stalled}

ddlrun --nodes 18 --racks 4 --aisles 2 python train.py "$CONDA_PREFIX/a"
""",  # noqa: E501
}
#: Options of ./hvd launch, and lines that the script has, or with ! has not.
LINES = """\
# perlmutter_gpu.sbatch of WarpX at 1b312c6
perlmutter-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -q regular
    #SBATCH -C gpu
    #SBATCH -N 2
    #SBATCH -c 32
    #SBATCH --gpu-bind=none
    #SBATCH --ntasks-per-node=4
    #SBATCH --gpus-per-node=4
    export SLURM_CPU_BIND=cores
    export SLURM_NETWORK=no_vni
    srun python train.py
# what `srun --network=no_vni` does, on many nodes only
perlmutter-hvd --nodes 1
    ! export SLURM_NETWORK=no_vni
# OLCF's pytorch_frontier.rst at f0571fe, whose srun has the nodes and ranks that the job has
frontier-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -p batch
    #SBATCH -N 2
    #SBATCH --network=disable_rdzv_get
    export NCCL_NET=OFI
    srun -c 7 --gpus-per-task=1 --gpu-bind=closest python train.py
frontier-hvd --nodes 1
    export NCCL_NET=Socket
# nccl-tests-container.sbatch of awsome-distributed-ai at 95b939c
parallelcluster-hvd --nodes 2
    #SBATCH -N 2
    #SBATCH --ntasks-per-node=8
    #SBATCH --gpus-per-node=8
    #SBATCH --exclusive
    #SBATCH --wait-all-nodes=1
    export FI_PROVIDER=efa
    export FI_EFA_FORK_SAFE=1
# job.sh for Leonardo of WarpX at 1b312c6, whose --mem=494000 for 32 cores is given for each here
leonardo-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -p boost_usr_prod
    #SBATCH -N 2
    #SBATCH -c 8
    #SBATCH --ntasks-per-node=4
    #SBATCH --gres=gpu:4
    #SBATCH --mem-per-cpu=15437
    srun python train.py
# launching.md for Vista of TACC-Docs at 1d94ecf, with the ranks of gh and what is rejected there
vista-hvd --nodes 2
    #SBATCH -p gh
    #SBATCH -N 2
    #SBATCH -n 2
    ! --gres
    ! --gpus
    ! --mem
    ! --export
    ibrun python train.py
# scripts of JUWELS' and JUPITER's users, 2026
juwels-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -p booster
    #SBATCH -N 2
    #SBATCH -c 12
    #SBATCH --ntasks-per-node=4
    #SBATCH --threads-per-core=1
    #SBATCH --gres=gpu:4
    export SRUN_CPUS_PER_TASK=12
    srun python train.py
jupiter-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -p booster
    #SBATCH -N 2
    #SBATCH -c 72
    #SBATCH --ntasks-per-node=4
    #SBATCH --gres=gpu:4
    export SRUN_CPUS_PER_TASK=72
    srun python train.py
# run_ddp_srun_4.sh of LUMI-AI-Guide, 2026-04, with the account and standard-g of csc-user-guide
# at dff081f
lumi-hvd --nodes 2 --account p_g
    #SBATCH -A p_g
    #SBATCH -p standard-g
    #SBATCH -N 2
    #SBATCH -c 7
    #SBATCH --ntasks-per-node=8
    #SBATCH --gpus-per-node=8
    #SBATCH --mem-per-gpu=60G
    srun --cpu-bind=v,mask_cpu=0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,\
0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000 \
python train.py
# example-job-scripts.md for Polaris of argonne-lcf/user-guides at 7d04a3f
polaris-hvd --nodes 2 --account p_g
    #!/bin/bash -l
    #PBS -A p_g
    #PBS -q debug
    #PBS -l select=2:system=polaris
    #PBS -l place=scatter
    #PBS -l filesystems=home:eagle
    cd "$PBS_O_WORKDIR"
    export NCCL_NET='AWS Libfabric'
    export MPICH_GPU_SUPPORT_ENABLED=0
# a node's 8 GPUs have 46 CPUs and 990000 MB, and 7 of them 40 CPUs: ZIH's page on limits
alpha-hvd --ranks-per-node 1
    #SBATCH -c 6
    #SBATCH --gres=gpu:1
    #SBATCH --mem-per-cpu=20625
    export SRUN_CPUS_PER_TASK=6
alpha-hvd --ranks-per-node 6
    #SBATCH -c 6
alpha-hvd --ranks-per-node 7
    #SBATCH -c 5
alpha-hvd --ranks-per-node 8
    #SBATCH -c 5
    #SBATCH --gres=gpu:8
    #SBATCH --mem-per-cpu=20625
# a queue is what the site calls so
perlmutter-hvd --queue debug
    #SBATCH -q debug
    ! #SBATCH -q regular
    ! #SBATCH -p
stampede2-hvd --queue development
    #SBATCH -p development
    ! #SBATCH -p flat-quadrant
    ! #SBATCH -q
summit-hvd --queue debug
    #BSUB -q debug
    ! #BSUB -q batch
alpha-hvd --queue other
    #SBATCH -p other
    ! #SBATCH -q
polaris-hvd --queue prod
    #PBS -q prod
    ! #PBS -q debug
# racks are reserved in expert mode, without -nnodes
summit-hvd --nodes 2 --racks 1
    #BSUB -csm y
    ! -nnodes
# a container has its own
perlmutter-2023-hvd --image a/b:1
    ! module load
    ! spack
"""


@pytest.mark.parametrize("options", SCRIPTS)
def test_a_script_is_that_of_the_document(options, launched) -> None:
    program = ["python", "train.py", "$CONDA_PREFIX/a"]
    done = launched([*shlex.split(options), "--batch", "--expand", "--", *program])
    assert done.out == SCRIPTS[options].replace("{stalled}", batch.STALLED)


@pytest.mark.parametrize("case", re.findall(r"^(?=\w).*(?:\n    .*)+", LINES, re.MULTILINE))
def test_a_script_has_the_lines_of_the_documents(case, launched) -> None:
    options, *expected = [line.strip() for line in case.splitlines()]
    done = launched([*options.split(), "--batch", "--", "python", "train.py"])
    lines = done.out.splitlines()
    for line in expected:
        if line.startswith("! "):
            assert line[2:] not in done.out
        else:
            assert line in lines


@pytest.mark.parametrize(("before", "after"), [(None, "1800"), ("60", "60"), ("0", "0")])
def test_a_job_of_which_a_rank_hangs_ends(before, after) -> None:
    name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
    printed = subprocess.check_output(
        ["sh", "-c", f"{batch.STALLED}\nprintenv {name}"],
        env={**os.environ, **({name: before} if before else {})},
        text=True,
    )
    assert printed == f"{after}\n"


SCHEDULED = [
    (name, method)
    for machine in map(site.load, site.names())
    for name, use in machine.environments.items()
    for method, own in machine.allowed.items()
    if machine.scheduler != "none" and own.operations in ("", use.operations)
]


@pytest.mark.parametrize(("name", "method"), SCHEDULED)
def test_every_script_is_shell_and_has_options_that_exist(name, method) -> None:
    takes = site.of(name).allowed[method].values
    request = launch(
        name,
        nodes=2,
        method=method,
        program=("a b", "$c"),
        hosts=("a", "b") if takes & {"slots", "job_slots"} else (),
        rankfile="/ranks" if "rankfile" in takes else "",
        **dict(account="acc", time="1:00:00", job_name="j", output="o%j", error="e%j"),
    )
    text = batch.script(request)
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    options = re.findall(r"^#(SBATCH|BSUB|PBS) (-[^ =\n]+)", text, re.MULTILINE)
    assert len(options) == len(re.findall("^#[^!]", text, re.MULTILINE)) >= 6
    for directive, option in options:
        assert option in OPTIONS[directive]
    assert text.endswith("'a b' '$c'\n")


def calls(script: str, directory) -> list:
    """Run a script with stand-ins on PATH: how they were called; its status is the launcher's."""
    for name in ("module", "spack"):
        stand_in(directory, name)
    stand_in(directory, "srun", "[ $PREPARED = yes ] && exit 7")
    environ = {"PATH": f"{directory}:{os.environ['PATH']}"}
    assert subprocess.run(["bash"], input=script, text=True, env=environ).returncode == 7
    return (directory / "calls").read_text().splitlines()


def test_a_script_runs(state, tmp_path) -> None:
    """Modules, activation and launch, in that order, with the fabric's variables."""
    state.mkdir()
    (state / "setup-env.sh").write_text("export PREPARED=yes\n")
    request = launch("perlmutter-2023-hvd", nodes=2, program=("python", "a b.py", "$HOME"))
    variables = "AWS Libfabric|cores|none"
    assert calls(batch.script(request), tmp_path) == [
        f"module|load|cudnn/8.3.2|nccl/2.15.5-ofi|evp-patch|{variables}",
        f"spack|env|activate|perlmutter-2023-hvd|{variables}",
        f"srun|python|a b.py|$HOME|{variables}",
    ]


def test_a_script_sources_what_was_written_for_it(tmp_path) -> None:
    """That needs no Spack, and loads the site's modules; variables for these nodes come last."""
    file = built.activation("frontier-hvd", "pip") / "activate.sh"
    file.parent.mkdir(parents=True)
    file.write_text("export PREPARED=yes NCCL_NET=OFI\n")
    request = launch("frontier-hvd", nodes=1, program=("python", "a.py"))
    (call,) = calls(batch.script(request), tmp_path)
    assert call.endswith("|python|a.py|Socket||none")
    for chosen in ({"modules": ("other/1",)}, {"setup": ("activate other",)}):
        assert str(file) not in batch.script(launch("frontier-hvd", program=("x",), **chosen))
    spack = built.activation("frontier-hvd", "spack") / "activate.sh"
    spack.parent.mkdir()
    spack.touch()
    assert f". {spack}" in batch.script(request)


def test_what_pip_built_is_activated_first() -> None:
    built.save(builds.record(environment="alpha-hvd"))
    request = launch("alpha-hvd", program=("x",))
    with pytest.raises(HvdError) as raised:
        batch.script(request)
    assert "./hvd activate alpha-hvd" in raised.value.remedy
    built.save(builds.record(environment="alpha-hvd", engine="spack"))
    assert "spack env activate alpha-hvd\n" in batch.script(request)


def test_an_environment_outside_the_checkout_is_activated_by_its_path(
    tmp_path, monkeypatch
) -> None:
    centre = tmp_path / "a centre"
    shutil.copytree(environment.load("alpha-hvd").directory, centre / "alpha-hvd", symlinks=True)
    monkeypatch.setenv("HVD_SITES", str(centre))
    text = batch.script(launch("alpha-hvd", program=("x",)))
    assert f"spack env activate -d '{centre}/alpha-hvd'\n" in text
