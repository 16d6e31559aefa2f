"""Batch scripts: those of the documents, the schedulers' options, and that they work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import batch, methods
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
PERLMUTTER = """\
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
export SLURM_CPU_BIND="cores"
module load  cudnn/8.3.2  nccl/2.15.5-ofi  evp-patch
source ~/.bashrc
conda activate horovod
srun python tf_keras_fashion_mnist.py
"""
SUMMIT = """\
#BSUB -P <PROJECT>
#BSUB -W 0:10
#BSUB -nnodes 2
#BSUB -q batch
#BSUB -J mldl_test_job
#BSUB -o /ccs/home/<user>/job%J.out
#BSUB -e /ccs/home/<user>/job%J.out
module load open-ce
jsrun -bpacked:7 -g6 -a6 -c42 -r1 python $CONDA_PREFIX/horovod/examples/tensorflow2_synthetic_benchmark.py
"""  # noqa: E501
ONE_RACK = """\
#BSUB -csm y
#BSUB -n 85
#BSUB -R 1*{select[((LN)&&(type==any))]order[r15s:pg]span[hosts=1]cu[type=rack:pref=config]}+84*{select[((CN)&&(type==any))]order[r15s:pg]span[ptile=42]cu[type=rack:maxcus=1]}
"""  # noqa: E501
EIGHT_RACKS = """\
#BSUB -P <PROJECT>
#BSUB -W 1:00
#BSUB -csm y
#BSUB -n 6049
#BSUB -R "1*{select[((LN) && (type == any))] order[r15s:pg] span[hosts=1] cu[type=rack:pref=config]}+6048*{select[((CN) && (type == any))] order[r15s:pg] span[ptile=42] cu[type=rack:maxcus=8]}"
#BSUB -q batch
#BSUB -J <PROJECT>
#BSUB -o /ccs/home/user/job%J.out
#BSUB -e /ccs/home/user/job%J.out
module load ibm-wml-ce/1.6.2-2
ddlrun --nodes 18 --racks 4 --aisles 2 python tf_cnn_benchmarks.py --variable_update=horovod
"""  # noqa: E501


def words(script):
    """The words of each line of ``script``, empty lines left out."""
    return [shlex.split(line) for line in script.splitlines() if line]


#: Each document's script, the options that ask for it, and the lines that are only in ours.
DOCUMENTS_OF_2023 = [
    (
        PERLMUTTER,
        "perlmutter-2023-hvd --nodes 2 --account dasrepo_g --time 2:00:00 --output %x_%j.out "
        "--error %x_%j.err --setup 'source ~/.bashrc' --setup 'conda activate horovod'",
        {
            "SLURM_KILL_BAD_EXIT": "1",
            "SRUN_CPUS_PER_TASK": "32",
            **site.load("perlmutter-2023").variables("nccl", nodes=2),
        },
    ),
    (
        SUMMIT,
        "summit-hvd --nodes 2 --account '<PROJECT>' --time 0:10:00 --job-name mldl_test_job "
        "--output '/ccs/home/<user>/job%J.out' --error '/ccs/home/<user>/job%J.out' "
        "--module open-ce --setup : --expand",
        {},
    ),
    # a DDL run on 144 nodes
    (
        EIGHT_RACKS,
        "summit-ddl-hvd --via ddlrun --nodes 144 --racks 8 --aisles 2 --time 1:00:00 "
        "--account '<PROJECT>' --job-name '<PROJECT>' --output /ccs/home/user/job%J.out "
        "--error /ccs/home/user/job%J.out --module ibm-wml-ce/1.6.2-2 --setup :",
        {"NCCL_LL_THRESHOLD": "0", "NCCL_TREE_THRESHOLD": "0"},
    ),
]


@pytest.mark.parametrize(("document", "options", "exports"), DOCUMENTS_OF_2023)
def test_a_script_is_that_of_the_document(document, options, exports, launched) -> None:
    """It has each line in that order, and variables for the launcher and the fabric."""
    program = words(document)[-1]
    program = program[program.index("python") :]
    ours = launched([*shlex.split(options), "--batch", "--", *program]).out
    # for the job's shell, as in the document
    assert ('"$CONDA_PREFIX/horovod' in ours) == ("$CONDA_PREFIX" in document)
    # a reservation has blanks in one document and none in the other: they do not count
    theirs = [
        [word.replace(" ", "") if "select[" in word else word for word in line]
        for line in words(document)
    ]
    assert [line for line in words(ours) if line in theirs] == theirs
    added = [line for line in words(ours) if line not in theirs and line != [":"]]
    values = [["export", f"{name}={value}"] for name, value in exports.items()]
    stalled = words(batch.STALLED)
    assert [line for line in added if line != ["#!/bin/bash"]] == [*values, *stalled]


def test_a_job_of_which_a_rank_hangs_ends(launched) -> None:
    done = launched("vista-hvd --batch --nodes 2 --account a -- python train.py".split())
    assert batch.STALLED in done.out.splitlines()
    for before, after in ((None, "1800"), ("60", "60"), ("0", "0")):
        name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
        variables = {**os.environ, **({name: before} if before else {})}
        printed = subprocess.check_output(
            ["sh", "-c", f"{batch.STALLED}\nprintenv {name}"], env=variables, text=True
        )
        assert printed == f"{after}\n"


def test_the_reservation_of_two_nodes_on_a_rack(launched) -> None:
    done = launched("summit-hvd --batch --nodes 2 --racks 1 -- a.out".split())
    assert [line for line in words(done.out) if line in words(ONE_RACK)] == words(ONE_RACK)
    assert "-nnodes" not in done.out  # not in expert mode


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


def test_a_script_runs(state, tmp_path) -> None:
    """Modules, activation and launch, in that order, with the fabric's variables."""
    state.mkdir()
    (state / "setup-env.sh").write_text("export PREPARED=yes\n")
    for name in ("module", "spack"):
        stand_in(tmp_path, name)
    stand_in(tmp_path, "srun", "[ $PREPARED = yes ] && exit 7")
    request = launch("perlmutter-2023-hvd", nodes=2, program=("python", "a b.py", "$HOME"))
    done = subprocess.run(
        ["bash"],
        input=batch.script(request),
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.returncode == 7  # the launcher's
    variables = "AWS Libfabric|cores|none"
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"module|load|cudnn/8.3.2|nccl/2.15.5-ofi|evp-patch|{variables}",
        f"spack|env|activate|perlmutter-2023-hvd|{variables}",
        f"srun|python|a b.py|$HOME|{variables}",
    ]


def test_a_script_sources_what_was_written_for_it(tmp_path) -> None:
    """That needs no Spack, and loads the site's modules; variables for these nodes come last."""
    file = built.activation("frontier-hvd", "pip") / "activate.sh"
    file.parent.mkdir(parents=True)
    file.write_text("export PREPARED=yes NCCL_NET=OFI\n")
    stand_in(tmp_path, "srun", "[ $PREPARED = yes ] && exit 7")
    request = launch("frontier-hvd", nodes=1, program=("python", "a.py"))
    text = batch.script(request)
    assert f". {file}" in text and "module" not in text and "spack" not in text
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(["bash"], input=text, text=True, env=environ).returncode == 7
    assert (tmp_path / "calls").read_text().splitlines()[-1].endswith("|python|a.py|Socket||none")

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
    assert "spack env activate alpha-hvd" in batch.script(request)


def test_an_environment_outside_the_checkout_is_activated_by_its_path(
    tmp_path, monkeypatch
) -> None:
    alpha = environment.load("alpha-hvd")
    centre = tmp_path / "a centre"
    shutil.copytree(alpha.directory, centre / "alpha-hvd", symlinks=True)
    request = launch("alpha-hvd", program=("x",))
    assert "spack env activate alpha-hvd\n" in batch.script(request)
    monkeypatch.setenv("HVD_SITES", str(centre))
    assert f"spack env activate -d '{centre}/alpha-hvd'\n" in batch.script(request)


def test_a_script_for_a_container_loads_nothing() -> None:
    text = batch.script(launch("perlmutter-2023-hvd", nodes=2, image="a/b:1", program=("x",)))
    assert "module load" not in text and "spack" not in text
    assert text.endswith("srun --mpi=pmi2 -l shifter --module=gpu,nccl-2.15 --image=a/b:1 x\n")


def test_horovodrun_asks_for_its_hosts_inside_of_the_job() -> None:
    taurus = dict(environment="taurus-ml-hvd", method="horovodrun", nodes=2)
    request = launch(**taurus, variables={"A": "b c"}, time="1:00:00", program=("x", "y z"))
    last = shlex.split(batch.script(request).splitlines()[-1])
    assert last == [
        *(str(paths.ROOT / "hvd"), "launch", "taurus-ml-hvd", "--partition", "ml"),
        *("--nodes", "2", "--ranks-per-node", "6", "--via", "horovodrun", "--env", "A=b c"),
        *("--run", "--", "x", "y z"),
    ]
    named = launch(**taurus, hosts=("a", "b"), program=("x",))
    assert batch.script(named).endswith("\nhorovodrun -np 12 -H a:6,b:6 x\n")


@pytest.mark.parametrize(("ranks", "cpus"), [(1, 6), (6, 6), (7, 5), (8, 5)])
def test_cpus_and_memory_of_alpha_are_within_its_limits(ranks, cpus) -> None:
    """Of 8 GPUs' 46 CPUs and 990000 MB, and 7 GPUs' 40; ZIH's page on limits."""
    lines = batch.script(launch("alpha-hvd", ranks_per_node=ranks, program=("x",))).splitlines()
    assert {f"#SBATCH -c {cpus}", "#SBATCH --mem-per-cpu=20625"} <= set(lines)
    assert f"export SRUN_CPUS_PER_TASK={cpus}" in lines
    assert f"#SBATCH --gres=gpu:{ranks}" in lines


@pytest.mark.parametrize("name", ["frontier-hvd", "perlmutter-hvd"])
def test_an_allocation_has_the_options_of_a_script(name) -> None:
    request = launch(name, nodes=2, program=("x",))
    head = request.partition.slurm.head
    assert head and set(head) <= set(batch.allocation(request).split())
    assert {f"#SBATCH {option}" for option in head} <= set(batch.script(request).splitlines())


def test_nccl_of_perlmutter_has_its_network_on_many_nodes_only() -> None:
    """What `srun --network=no_vni` does."""
    line = "export SLURM_NETWORK=no_vni"
    assert line in batch.script(launch("perlmutter-hvd", nodes=2, program=("x",)))
    assert line not in batch.script(launch("perlmutter-hvd", nodes=1, program=("x",)))


@pytest.mark.parametrize(
    ("name", "queue", "option"),
    [
        ("perlmutter-hvd", "debug", "#SBATCH -q debug"),
        ("stampede2-hvd", "development", "#SBATCH -p development"),
        ("summit-hvd", "debug", "#BSUB -q debug"),
        ("alpha-hvd", "other", "#SBATCH -p other"),
        ("polaris-hvd", "prod", "#PBS -q prod"),
    ],
)
def test_a_queue_is_what_the_site_calls_so(name, queue, option) -> None:
    lines = batch.script(launch(name, queue=queue, program=("x",))).splitlines()
    assert option in lines
    assert len([line for line in lines if line.split()[1:2] in (["-q"], ["-p"])]) == 1


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
