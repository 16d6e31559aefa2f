"""Batch scripts have the lines, and launchers the words, of the sites' documents of today."""

from __future__ import annotations

import re
import shlex

import pytest

from hvd.launch import batch, methods
from tests.unit.launching import launch

#: Lines of the sites' documents of 2026: perlmutter_gpu.sbatch of WarpX at 1b312c6; OLCF's
#: pytorch_frontier.rst at f0571fe, whose srun has the nodes and ranks that the job has;
#: nccl-tests-container.sbatch of awsome-distributed-ai at 95b939c; job.sh for Leonardo of WarpX at
#: 1b312c6, whose --mem=494000 for 32 cores is given for each here; launching.md for Vista of
#: TACC-Docs at 1d94ecf, with the ranks of gh; scripts of JUWELS' and JUPITER's users, 2026;
#: example-job-scripts.md for Polaris of argonne-lcf/user-guides at 7d04a3f; and run_ddp_srun_4.sh
#: of LUMI-AI-Guide, 2026-04, with the account and standard-g of csc-user-guide at dff081f.
DOCUMENTS = {
    "perlmutter-hvd": """\
#SBATCH -A p_g
#SBATCH -q regular
#SBATCH -C gpu
#SBATCH -N 2
#SBATCH -c 32
#SBATCH --gpu-bind=none
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export SLURM_CPU_BIND=cores
srun python train.py""",
    "frontier-hvd": """\
#SBATCH -A p_g
#SBATCH -p batch
#SBATCH -N 2
#SBATCH --network=disable_rdzv_get
srun -c 7 --gpus-per-task=1 --gpu-bind=closest python train.py""",
    "parallelcluster-hvd": """\
#SBATCH -N 2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --wait-all-nodes=1
export FI_PROVIDER=efa
export FI_EFA_FORK_SAFE=1""",
    "leonardo-hvd": """\
#SBATCH -A p_g
#SBATCH -p boost_usr_prod
#SBATCH -N 2
#SBATCH -c 8
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --mem-per-cpu=15437
srun python train.py""",
    "vista-hvd": """\
#SBATCH -p gh
#SBATCH -N 2
#SBATCH -n 2
ibrun python train.py""",
    "juwels-hvd": """\
#SBATCH -A p_g
#SBATCH -p booster
#SBATCH -N 2
#SBATCH -c 12
#SBATCH --ntasks-per-node=4
#SBATCH --threads-per-core=1
#SBATCH --gres=gpu:4
export SRUN_CPUS_PER_TASK=12
srun python train.py""",
    "jupiter-hvd": """\
#SBATCH -A p_g
#SBATCH -p booster
#SBATCH -N 2
#SBATCH -c 72
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
export SRUN_CPUS_PER_TASK=72
srun python train.py""",
    "lumi-hvd": """\
#SBATCH -A p_g
#SBATCH -p standard-g
#SBATCH -N 2
#SBATCH -c 7
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --mem-per-gpu=60G
srun --cpu-bind=v,mask_cpu=0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,\
0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000 \
python train.py""",
    "polaris-hvd": """\
#!/bin/bash -l
#PBS -A p_g
#PBS -q debug
#PBS -l select=2:system=polaris
#PBS -l place=scatter
#PBS -l filesystems=home:eagle
cd "$PBS_O_WORKDIR"
export NCCL_NET='AWS Libfabric'
export MPICH_GPU_SUPPORT_ENABLED=0""",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_script_has_the_lines_of_the_documents(name) -> None:
    request = launch(name, nodes=2, account="p_g", program=("python", "train.py"))
    lines = batch.script(request).splitlines()
    assert set(DOCUMENTS[name].splitlines()) <= set(lines)
    if name == "vista-hvd":
        # the options that the guide says are rejected
        assert not re.search("--(gres|gpus|mem|export)", "\n".join(lines))


#: Options of ./hvd launch, the launcher's line in a document, and the words that are only in the
#: document's, or only in ours.  AWS: nccl-tests-ami.sbatch and nccl-tests-container.sbatch of
#: awsome-distributed-ai at 95b939c, whose LD_LIBRARY_PATH is for a program outside of Spack.
LAUNCHERS = [
    (
        "parallelcluster-hvd --nodes 2",
        "mpirun -n 16 -N 8 -x FI_PROVIDER=efa -x FI_EFA_FORK_SAFE=1 -x LD_LIBRARY_PATH=... "
        "-x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=^docker,lo,veth --bind-to none",
        "-n LD_LIBRARY_PATH=... NCCL_DEBUG=INFO",
        "-np LD_LIBRARY_PATH PATH",
    ),
    ("parallelcluster-hvd --nodes 2 --via srun", "srun --mpi=pmix --cpu-bind=none", "", ""),
    # using-gpus.md of argonne-lcf/user-guides at 7d04a3f, with the numbers of its variables
    (
        "polaris-hvd --nodes 2 --time 0:30:00",
        "mpiexec -n 8 --ppn 4 --depth=8 --cpu-bind depth ./set_affinity_gpu_polaris.sh",
        "./set_affinity_gpu_polaris.sh",
        f"{methods.GPU_RANK} CUDA_VISIBLE_DEVICES PMI_LOCAL_RANK 3,2,1,0",
    ),
]


@pytest.mark.parametrize(("options", "document", "left_out", "added"), LAUNCHERS)
def test_a_launcher_has_the_words_of_the_documents(
    options, document, left_out, added, launched
) -> None:
    script = launched([*options.split(), "--batch", "--", "python", "train.py"]).out
    *ours, interpreter, program = shlex.split(script.splitlines()[-1])
    theirs = document.split()
    assert (interpreter, program) == ("python", "train.py")
    assert set(theirs) - set(ours) == set(left_out.split())
    assert set(ours) - set(theirs) == set(added.split())
