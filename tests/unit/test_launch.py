"""The launch lines of the documents, word for word, and what the other machines get.

The lines are what the sites' documents print; `shlex.split` of ours has to give the same words.
"""

from __future__ import annotations

import shlex

import pytest

from tests.unit.launching import CONDA, TWO_NODES, launch

ON_FOUR_HOSTS = "16 -H server1:4,server2:4,server3:4,server4:4"
ON_FOUR = ["--hosts", "server[1-4]", "--ranks-per-node", "4"]
SRUN = {"SLURM_JOB_NODELIST": TWO_NODES}
KISTI = "KISTI-DL-tutorial-using-horovod/src"
IMAGE = "qualis2006/tensorflow-pytorch-horovod:tf2.10_pt1.13"
SHIFTER = f"NCCL_DEBUG=INFO srun --mpi=pmi2 -l -n 8 shifter --module=gpu,nccl-2.15 --image={IMAGE}"
IN_SHIFTER = ["--nodes", "2", "--env", "NCCL_DEBUG=INFO", "--image", IMAGE]
KNL = "taskset -c 0-64,68-132,136-200,204-268 numactl -p 1"
TF_CNN = (
    "python scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py --model resnet50 --batch_size 128 "
    "--variable_update horovod --data_format NCHW --num_intra_threads 64 --num_inter_threads 3 "
    "--distortions=False --num_batches 200"
)
DDL_TF_CNN = (
    "python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=horovod "
    "--model=resnet50 --num_gpus=1 --batch_size=256 --num_batches=100 --num_warmup_batches=10 "
    "--data_name=imagenet --allow_growth=True --use_fp16"
)
SPECTRUM = (
    "/autofs/nccs-svm1_sw/summit/.swci/1-compute/opt/spack/20180914/linux-rhel7-ppc64le/"
    "xl-16.1.1-3/spectrum-mpi-10.3.0.1-20190611-aqjt3jo53mogrrhcrd2iufr435azcaha/bin"
)
RANKFILE = "/tmp/DDLRUN/DDLRUN.xoObgjtixZfp/RANKFILE"

#: id: (the document's line, environment and options, the program, the surroundings)
DOCUMENTS = {
    "taurus-horovodrun": (
        f"horovodrun -np {ON_FOUR_HOSTS} python train.py",
        ["taurus-ml-hvd", "--via", "horovodrun", *ON_FOUR],
        "python train.py",
        {},
    ),
    # the document stops before the program
    "taurus-horovodrun-gloo": (
        "horovodrun --gloo -np 2 python train.py",
        ["local-hvd", "--via", "horovodrun", "--gloo"],
        "python train.py",
        {},
    ),
    "taurus-mpirun": (
        "mpirun -np 16 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH "
        "-mca pml ob1 -mca btl ^openib python my_application.py",
        ["taurus-ml-hvd", "--nodes", "4", "--ranks-per-node", "4"],
        "python my_application.py",
        {},
    ),
    "taurus-mpirun-rdma": (
        f"mpirun -np {ON_FOUR_HOSTS} -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
        "-x LD_LIBRARY_PATH -x HOROVOD_MPI_THREADS_DISABLE=1 -x PATH -mca pml ob1 python train.py",
        ["taurus-ml-mpi-hvd", "--rdma", *ON_FOUR],
        "python train.py",
        {},
    ),
    "taurus-srun-shell": (
        "srun -N 1 --ntasks-per-node=6 -p ml --time=08:00:00 --pty bash",
        ["taurus-ml-mpi-hvd", "--allocate", "--time", "08:00:00"],
        "",
        {},
    ),
    "perlmutter-salloc": (
        "salloc --nodes 2 --qos interactive --time 01:00:00 --constraint gpu --gpus-per-node=4 "
        "--account=m1234_g",
        "perlmutter-hvd --allocate --nodes 2 --time 01:00:00 --account m1234_g".split(),
        "",
        {},
    ),
    "perlmutter-2x4": (
        "srun -n 8 python train_hvd.py",
        ["perlmutter-hvd", "--nodes", "2"],
        "python train_hvd.py",
        SRUN,
    ),
    "perlmutter-2x2": (
        "srun -n 4 python train_hvd.py",
        ["perlmutter-hvd", "--nodes", "2", "--ranks-per-node", "2"],
        "python train_hvd.py",
        SRUN,
    ),
    "perlmutter-2x2-outside": (
        "srun -N 2 -n 4 python train_hvd.py",
        ["perlmutter-hvd", "--nodes", "2", "--ranks-per-node", "2"],
        "python train_hvd.py",
        {},
    ),
    "perlmutter-1x4": (
        "srun -N 1 -n 4 python train_hvd.py",
        ["perlmutter-hvd"],
        "python train_hvd.py",
        SRUN,
    ),
    # the document's prompt is a login node's, where there is no job to start this in
    **{
        f"perlmutter-shifter-{framework}": (
            f"{SHIFTER} python {KISTI}/{framework}/{program}",
            ["perlmutter-hvd", *IN_SHIFTER],
            f"python {KISTI}/{framework}/{program}",
            SRUN,
        )
        for framework, program in (
            ("tensorflow", "tf_keras_cats_dogs.py"),
            ("keras", "keras_imagenet_resnet50.py"),
            ("pytorch", "pytorch_imagenet_resnet50.py"),
        )
    },
    "stampede2-tf-cnn": (
        f"mpiexec.hydra -l -ppn 1 -n 2 {KNL} {TF_CNN}",
        ["stampede2-hvd", "--nodes", "2"],
        TF_CNN,
        {},
    ),
    "stampede2-keras": (
        f"mpiexec.hydra -l -ppn 1 -n 1 {KNL} python keras_mnist.py",
        ["stampede2-hvd"],
        "python keras_mnist.py",
        {},
    ),
    "summit-jsrun": (
        "jsrun -r1 -g6 -a6 -c42 -bpacked:7  <SCRIPT>",
        ["summit-hvd"],
        "'<SCRIPT>'",
        {},
    ),
    "summit-ddlrun": (
        f"ddlrun --nodes 18 --racks 4 --aisles 2 {DDL_TF_CNN}",
        "summit-ddl-hvd --via ddlrun --nodes 144 --racks 8 --aisles 2".split(),
        DDL_TF_CNN,
        {},
    ),
    "summit-ddlrun-plain": (
        "ddlrun python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=ddl "
        "--model=resnet50",
        ["summit-ddl-hvd", "--via", "ddlrun"],
        "python '$CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py' --variable_update=ddl "
        "--model=resnet50",
        {},
    ),
}


@pytest.mark.parametrize(
    ("line", "options", "program", "environ"), DOCUMENTS.values(), ids=list(DOCUMENTS)
)
def test_the_line_of_the_document(line, options, program, environ, launched) -> None:
    separated = ["--", *shlex.split(program)] if program else []
    done = launched([*options, *separated], **environ)
    assert done.status == 0, done.err
    assert done.out.count("\n") == 1
    assert shlex.split(done.out) == shlex.split(line)


def test_what_ddlrun_says_that_it_starts(launched) -> None:
    """The document's line, but for the directory of mpirun, which a module puts on PATH."""
    program = f"source {CONDA}/etc/profile.d/conda.sh && conda activate {CONDA}/envs/ibm-wml-ce"
    line = (
        f"{SPECTRUM}/mpirun -x LSB_JOBID -x PATH -x PYTHONPATH -x LD_LIBRARY_PATH "
        "-x LSB_MCPU_HOSTS -x NCCL_LL_THRESHOLD=0 -x NCCL_TREE_THRESHOLD=0 -disable_gdr -gpu "
        f'--rankfile {RANKFILE} -x "DDL_OPTIONS=-mode p:6x2x1x1 " -n 12 '
        "-mca plm_rsh_num_concurrent 12 -x DDL_HOST_PORT=2200 "
        '-x "DDL_HOST_LIST=g28n14:0,2,4,6,8,10;g28n15:1,3,5,7,9,11" '
        f"bash -c '{program}'"
    )
    options = "summit-ddl-hvd --via ddl-mpirun --hosts g28n[14-15] --rankfile".split()
    done = launched([*options, RANKFILE, "--", "bash", "-c", program])
    directory, *words = shlex.split(line)
    assert shlex.split(done.out) == ["mpirun", *words]
    assert directory.endswith("/mpirun")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("frontier-hvd --nodes 2", "srun -N 2 -n 16 -c 7 --gpus-per-task=1 --gpu-bind=closest"),
        ("stampede3-hvd --nodes 2", "ibrun -n 8"),
        ("stampede3-cpu-hvd --ranks-per-node 112", "ibrun -n 112"),
        ("stampede2-hvd --via ibrun --ranks-per-node 2", "ibrun -n 2"),
        ("stampede2-hvd --ranks-per-node 2", "mpiexec.hydra -l -ppn 2 -n 2 numactl -p 1"),
        ("stampede2-hvd --partition normal", "mpiexec.hydra -l -ppn 1 -n 1"),
        ("alpha-hvd", "srun -N 1 -n 8"),
        ("capella-hvd --nodes 3", "srun -N 3 -n 12"),
        ("local-hvd", "mpirun -np 2"),
        ("local-hvd --hosts a,b --env X=1", "mpirun -np 4 -H a:2,b:2 -x X=1"),
        ("taurus-ml-mpi-hvd --ranks-per-node 8 --via srun", "srun -N 1 -n 8"),
        ("summit-hvd --ranks-per-node 2", "jsrun -r1 -g2 -a2 -c14 -bpacked:7"),
        (
            "summit-hvd --smpiargs=-disable_gpu_hooks",
            "jsrun -r1 -g6 -a6 -c42 -bpacked:7 --smpiargs=-disable_gpu_hooks",
        ),
        (
            "perlmutter-hvd --ask --account m1_g --queue debug --ranks-per-node 2",
            "srun -A m1_g -C gpu -q debug -N 1 -c 32 --ntasks-per-node=2 --gpus-per-node=2 "
            "--cpu-bind=cores",
        ),
        (
            "taurus-ml-hvd --via srun --ask --nodes 2 --ranks-per-node 1 --env NCCL_DEBUG='a b'",
            "NCCL_DEBUG='a b' srun -p ml -N 2 -c 7 --ntasks-per-node=1 --gres=gpu:1 "
            "--mem-per-cpu=1443",
        ),
    ],
)
def test_other_machines_and_shapes(options, line, launched) -> None:
    done = launched([*shlex.split(options), "--", "python", "train.py"])
    assert done.out == f"{line} python train.py\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            "frontier-hvd --account a --time 1:00:00",
            "salloc --nodes 1 --partition batch --time 1:00:00 --account=a",
        ),
        ("capella-hvd --nodes 2", "salloc --nodes 2 --gres=gpu:4"),
        ("stampede2-hvd --nodes 2 --time 1:00:00", "idev -p flat-quadrant -N 2 -n 2 -m 60"),
        ("stampede3-hvd --account a", "idev -p h100 -N 1 -n 4 -A a"),
        (
            "summit-hvd --nodes 2 --time 2:30:01 --account a",
            "bsub -W 2:31 -nnodes 2 -P a -Is /bin/bash",
        ),
    ],
)
def test_nodes_to_type_on(options, line, launched) -> None:
    assert launched([*options.split(), "--allocate"]).out == f"{line}\n"


def test_a_part_of_an_lsf_job_says_how_many_hosts(launched) -> None:
    job = {"LSB_MCPU_HOSTS": "batch5 1 h49n16 42 h50n01 42"}
    half = launched(["summit-hvd", "--", "a.out"], **job).out
    assert half == "jsrun -n1 -r1 -g6 -a6 -c42 -bpacked:7 a.out\n"
    whole = launched(["summit-hvd", "--nodes", "2", "--", "a.out"], **job).out
    assert whole == "jsrun -r1 -g6 -a6 -c42 -bpacked:7 a.out\n"


def test_words_with_blanks_and_dollars_come_through(launched) -> None:
    words = ["python", "a b.py", "$HOME/x", "it's"]
    assert shlex.split(launched(["local-hvd", "--", *words]).out)[3:] == words
    expanded = launched(["local-hvd", "--expand", "--", *words]).out
    assert shlex.split(expanded)[3:] == words
    assert '"$HOME/x"' in expanded


def test_what_the_fabric_needs_is_said_beside_the_line(launched) -> None:
    done = launched(["perlmutter-hvd", "--", "a.out"])
    assert "export NCCL_NET='AWS Libfabric'" in done.err
    assert "MPICH_GPU_SUPPORT_ENABLED=0" in done.err
    assert "--allocate" in done.err
    assert "export" not in launched(["taurus-ml-hvd", "--", "a.out"]).err  # -x has it


def test_one_node_of_frontier_has_another_network() -> None:
    request = launch("frontier-hvd", nodes=1)
    assert request.fabric["NCCL_NET"] == "Socket"
    assert launch("frontier-hvd", nodes=2).fabric["NCCL_NET"] == "OFI"
