"""What py-horovod's recipe refuses, each beside a neighbour that it takes.

One table for two readers: the unit tier evaluates the directives as the pip engine does, and
the Spack tier has Spack evaluate them.  Variants that a case does not name have their defaults.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from hvd.model import specs
from hvd.model.recipe import Recipe


class Case(NamedTuple):
    """A spec that must be refused with a message, and one that must not be refused.

    Args:
        refused: a spec of py-horovod, without the name.
        taken: its nearest neighbour that is right.
        message: part of what is said; for a dependency, the dependency.
        virtual: only Spack knows what a provider provides.
    """

    refused: str
    taken: str
    message: str
    virtual: bool = False


def complete(recipe: Recipe, text: str) -> str:
    """``text`` as a spec of py-horovod that leaves no variant open."""
    root, edge, rest = re.match(r"(.*?)( [\^%]|$)(.*)", text).groups()
    asked = specs.parse(f"py-horovod{root}")
    for name, value in recipe.complete(asked).variants.items():
        if name not in asked.variants:
            flag = f"{'+' if value else '~'}{name}"
            root += f" {flag if isinstance(value, bool) else f'{name}={next(iter(value))}'}"
    return f"py-horovod{root}{edge}{rest}"


#: What names after a dollar stand for in the specs of the table.
SHORT = {
    "GPU": "+cuda cuda_arch=80",
    "ROCM": "+rocm amdgpu_target=gfx90a",
    "DDL": "+cuda~nccl cuda_arch=70 target=power9le",
    "POWER": "+cuda cuda_arch=70 target=power9le",
    "TF": "frameworks=tensorflow",
    "SPARK": "frameworks=spark",
    "MPI": "^[virtuals=mpi]",
    "SMPI": "^[virtuals=mpi] spectrum-mpi@10.4",
    "OMPI": "^[virtuals=mpi] openmpi@4.1+cuda",
}


def case(text: str, message: str, virtual: bool = False) -> Case:
    """A case of a spec in which ``{REFUSED|TAKEN}`` marks where the two differ."""
    both = string.Template(text).substitute(SHORT)
    refused, taken = (re.sub(r"{(.*?)\|(.*?)}", part, both) for part in (r"\1", r"\2"))
    return Case(refused, taken, message, virtual)


CASES = [
    # build tools
    case("@0.28.1 ^cmake@{3.12.4|3.13.0}", "cmake@3.13:"),
    case("@0.23.0 ^cmake@{2.8.11|2.8.12}", "cmake@2.8.12:"),
    case("@0.19.5 {|~gloo }^cmake@2.8.11", "cmake@2.8.12:"),
    # setup.py
    case("@0.20.0 ^python@{3.5.10|3.6.8}", "python@3.6:"),
    case("@{0.23.0|0.24.0} ^python@3.12.1", "python@:3.11"),
    case("@{0.19.0|0.19.1} ^python@3.10.1", "python@:3.9"),
    case("@0.21.3 ^python@{3.7.1|3.8.1} ^py-pyyaml@6.0.2", "py-pyyaml@:6.0.1"),
    case("@0.28.0 ^py-cffi@{1.3.1|1.4.0}", "py-cffi@1.4:"),
    case("@0.28.1 ^py-torch@{2.0.1|2.1.0} ^py-setuptools@70.0", "py-setuptools@:69"),
    # lower bounds of the frameworks
    case("@0.25.0 ^py-torch@{1.4.1|1.5.0}", "py-torch@1.5:"),
    case("@0.24.3 ^py-torch@{1.1.0|1.2.0}", "py-torch@1.2:"),
    case("@0.19.5 ^py-torch@{0.3.1|0.4.1}", "py-torch@0.4:"),
    case("@0.20.0 $TF ^py-tensorflow@{1.14.0|1.15.0}", "py-tensorflow@1.15:"),
    case("@0.19.5 $TF ^py-tensorflow@{1.0.0|1.1.0}", "py-tensorflow@1.1:"),
    case("@0.28.1 frameworks=mxnet ^mxnet@{2.0.0|1.9.1}+python~cuda", "mxnet@1.4.1:1"),
    case("@0.28.1 $TF,keras ^py-keras@{2.1.1|2.1.2}", "py-keras@2.0.8,2.1.2:"),
    case("@0.28.1 frameworks=mxnet ^py-numpy@{1.24.4|1.23.5}", "py-numpy@:1.23"),
    # Spark
    case("@0.28.1 $SPARK ^py-pyspark@{3.5.1|4.1.1} ^python@3.12.1", "python@:3.11"),
    case("@0.28.1 $SPARK ^py-pyspark@{3.3.4|3.5.1} ^python@3.11.9", "python@:3.10"),
    case("@0.26.1 $SPARK ^py-petastorm@{0.11.5|0.12.0}", "py-petastorm@0.12:"),
    case("@0.25.0 $SPARK ^py-petastorm@{0.10.0|0.11.0}", "py-petastorm@0.11:"),
    case("@0.21.1 $SPARK ^py-petastorm@{0.9.7|0.9.8}", "py-petastorm@0.9.8:"),
    case("@0.21.0 $SPARK ^py-petastorm@{0.9.3|0.9.4}", "py-petastorm@0.9:0.9.2,0.9.4:"),
    case("@0.19.2 $SPARK ^py-petastorm@{0.8.2|0.9.3}", "py-petastorm@0.9:"),
    case("@0.19.1 $SPARK ^py-petastorm@{0.9.0|0.8.2}", "py-petastorm@0.8.2"),
    case("@0.19.0 $SPARK ^py-petastorm@{0.7.6|0.7.7}", "py-petastorm@0.7.7:"),
    case("@0.28.1 $SPARK ^py-pyarrow@{0.14.1|0.15.1}", "py-pyarrow@0.15:"),
    case("@{0.27.0|0.26.1} $SPARK ^py-pyarrow@11.0.0", "py-pyarrow@:10"),
    case("@{0.24.2|0.24.1} $SPARK ^py-fsspec@2021.06.1", "py-fsspec@2021.07:"),
    case("@{0.23.0|0.24.0} $SPARK ^py-h5py@3.1.0", "py-h5py@:2"),
    case("@0.20.3 $SPARK ^py-h5py@{2.8.0|2.9.0}", "py-h5py@2.9:"),
    case("@0.28.1 $SPARK ^python@{3.8.1|3.7.9} ^py-pyspark@2.4.8", "py-pyspark@3:"),
    case("@0.28.1 $SPARK ^python@3.7.9 ^py-pyspark@{2.3.1|2.3.2}", "py-pyspark@2.3.2:"),
    case(
        "@0.28.1 frameworks=pytorch{,spark|} ^py-pytorch-lightning@1.6.3",
        "py-pytorch-lightning@1.3.8:1.5.9",
    ),
    case(
        "@0.24.3 frameworks=pytorch{,spark|} ^py-pytorch-lightning@1.4.0",
        "py-pytorch-lightning@1.3.8",
    ),
    # Ray
    case("@{0.23.0|0.22.1} frameworks=ray ^py-aioredis@2.0.0", "py-aioredis@:1"),
    case("@{0.26.0|0.25.0} frameworks=ray ^py-google-api-core@2.9.0", "py-google-api-core@:2.8"),
    case("@{0.19.5|0.20.0} frameworks=ray", "Ray before 0.20; use @0.20:"),
    case("@0.28.1 {~gloo |}frameworks=ray", "use +gloo"),
    # controllers
    case("@0.28.1 {|~mpi }$MPI openmpi@1.6.5", "mpi@3:", virtual=True),
    case("@0.28.1 ~mpi{~|+}gloo", "use +mpi or +gloo"),
    case("@{0.20.0|0.20.1} platform=darwin", "use ~gloo or @0.20.1:"),
    case(
        "@0.28.1 +mpi $MPI openmpi@{3.1.3|3.1.2}",
        "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:",
    ),
    case(
        "@0.28.1 +mpi $MPI openmpi@2.1.6{~|+}thread_multiple",
        "use openmpi+thread_multiple or openmpi@4:",
    ),
    # operations on GPUs
    case("@0.28.1 {$GPU |}$ROCM", "one GPU stack"),
    case("@0.28.1 $GPU {~nccl|gpu_ops=mpi $OMPI}", "use +nccl, gpu_ops=mpi"),
    case("@0.28.1 $ROCM {~|+}nccl", "use +nccl, gpu_ops=mpi"),
    case("@0.28.1 +cuda cuda_arch={none|80}", "use cuda_arch=<capability>"),
    case("@0.28.1 +nccl{| $GPU}", "use cuda_arch=<capability>"),
    case("@0.28.1 +nccl{| $ROCM}", "or for AMD GPUs +rocm amdgpu_target=<gfx>"),
    case("@0.28.1 +rocm amdgpu_target={none|gfx90a}", "use amdgpu_target=<gfx>"),
    case("@{0.24.3|0.25.0} +cuda cuda_arch=90a", "cuda_arch=90 in place"),
    case("@{0.19.0|0.19.1} $ROCM", "use @0.19.1:"),
    case("@{0.27.0|0.28.0} $ROCM ^hip@6.0.0+rocm", "use hip@:5"),
    case("@0.27.0 $ROCM ^hip@{6.0.0|5.7.1}+rocm", "or @0.28:"),
    case("@0.28.1 $ROCM ^cmake@{3.20|3.21}", "cmake@3.21:"),
    case("@0.28.1 $GPU ^nccl@{2.8.3|2.8.4}-1 cuda_arch=80", "use nccl@:2.8.2 or nccl@2.8.4:"),
    case("@0.28.1 $GPU ^nccl@{2.6.4|2.7.3}-1 cuda_arch=80", "nccl@2.7:"),
    case("@0.19.5 $GPU ^nccl@{1.3.4|2.4.8}-1 cuda_arch=80", "nccl@2:"),
    case(
        "@0.27.0 nccl_link={static|shared} $GPU ^nccl@2.12.7-1 cuda_arch=80",
        "use nccl_link=shared",
    ),
    case("@0.23.0 $GPU ^cuda@{12.0.0|11.8.0}", "cuda@:11"),
    case("@0.28.1 {~mpi |}gpu_ops=mpi $GPU{| $OMPI}", "require MPI"),
    *(
        case(
            f"@0.28.1 gpu_ops=mpi {gpu} $MPI {mpi}{{~|+}}{stack}",
            f"-aware MPI; use ^openmpi+{stack}",
        )
        for mpi in ("openmpi@4.1", "mpich@4.1", "mvapich-plus@4.1", "cray-mpich@8.1")
        for gpu, stack in (("$GPU", "cuda"), ("$ROCM", "rocm"))
    ),
    case("@0.28.1 {gpu_ops=mpi |}$GPU $MPI mvapich2@2.3.7", "-aware MPI; use ^openmpi+cuda"),
    # IBM DDL
    case("@0.28.1 +ddl{~mpi|} $DDL $SMPI", "the MPI controller"),
    case(
        "@0.28.1 +ddl $DDL $MPI {openmpi@4.1.6|spectrum-mpi@10.4}",
        "use ^[virtuals=mpi] spectrum-mpi or ~ddl",
    ),
    case("@0.19.5 +ddl{+nccl|} $POWER $SMPI", "use ~ddl or ~nccl"),
    *(
        case(
            f"@0.19.5 +ddl{{+cuda~nccl cuda_arch=70 target={target}| $DDL}} $SMPI",
            "use target=power8le or target=power9le",
        )
        for target in ("x86_64", "aarch64")
    ),
    # operations on CPUs
    case(
        "@0.28.1 +ccl $MPI openmpi@4.1 ^intel-oneapi-ccl@{2020.1|2021.1.1}",
        "intel-oneapi-ccl@2021:",
    ),
    # frameworks and GPU stacks
    case("@0.28.1 frameworks=keras ^py-tensorflow@{1.14.0|1.15.0}", "py-tensorflow@1.15:"),
    *(
        case(
            f"@0.28.1 frameworks=keras ^py-keras@3.10 backend={{{backend}|tensorflow}}",
            "use ^py-keras backend=tensorflow",
        )
        for backend in ("jax", "torch")
    ),
    *(
        case(
            f"@0.28.1 {stack} frameworks={framework} ^{package}{variant}{{{wrong}|{right}}}{arch}",
            f"{package}{right}",
        )
        for framework, package, variant in (
            ("pytorch", "py-torch", "@2.0.1"),
            ("tensorflow", "py-tensorflow", "@2.15.1"),
            ("mxnet", "mxnet", "@1.9.1+python"),
        )
        for stack, wrong, right, arch in (
            ("$GPU", "~cuda", "+cuda", " cuda_arch=80"),
            ("$ROCM", "~rocm", "+rocm", " amdgpu_target=gfx90a"),
            ("~cuda", "+cuda", "~cuda", ""),
            ("~rocm", "+rocm", "~rocm", ""),
        )
        if (package, "rocm") != ("mxnet", right.strip("+~"))
    ),
    *(
        case(
            f"@0.28.1 +cuda cuda_arch=90a frameworks={framework}"
            f" ^{package}@{version} +cuda cuda_arch={{80|90a}}",
            f"{package} cuda_arch=90a",
        )
        for framework, package, version in (
            ("pytorch", "nccl", "2.27.3-1"),
            ("pytorch", "py-torch", "2.8.0"),
            ("tensorflow", "py-tensorflow", "2.18.0"),
            ("keras", "py-tensorflow", "2.18.0"),
            ("mxnet", "mxnet", "1.9.1+python"),
        )
    ),
    case(
        "@0.28.1 {$ROCM|~rocm} frameworks=mxnet ^mxnet@1.9.1+python~cuda",
        "MXNet does not support AMD GPUs",
    ),
    # upper bounds of the frameworks
    *(
        case(
            f"@{horovod} $TF ^py-tensorflow@{{{refused}.0|{taken}}}",
            f"does not support TensorFlow {refused} and later; use py-tensorflow@:",
        )
        for horovod, taken, refused in (
            ("0.28.1", "2.21.0", "2.22"),
            ("0.27.0", "2.12.1", "2.13"),
            ("0.26.1", "2.11.1", "2.12"),
            ("0.25.0", "2.11.1", "2.12"),
            ("0.24.3", "2.9.3", "2.10"),
            ("0.23.0", "2.8.4", "2.9"),
            ("0.22.1", "2.6.5", "2.7"),
            ("0.22.0", "2.5.3", "2.6"),
            ("0.20.3", "2.3.4", "2.4"),
        )
    ),
    case("@0.28.1 $TF %gcc@{7.5.0|8.1.0} ^py-tensorflow@2.10.0", "use %gcc@8:"),
    case("@0.28.1 %gcc@{7.5.0|8.1.0} ^py-torch@2.1.0", "use %gcc@8:"),
    case("@0.28.1 %gcc@{8.5.0|9.1.0} ^py-torch@2.2.2", "use %gcc@9:"),
    case("@0.28.1 %gcc@{10.5.0|11.3.0} ^py-torch@2.14.0", "use %gcc@11:"),
    case("@0.28.1 ^py-torch@{2.16.0|2.15.0}", "use py-torch@:2.15"),
    case("@0.28.0 ^py-torch@{2.14.0|2.13.0}", "use py-torch@:2.13"),
    case("@0.24.3 ^py-torch@{2.1.0|2.0.1}", "use py-torch@:2.0"),
    case("@0.23.0 ^py-torch@{1.11.0|1.10.2}", "use py-torch@:1.10"),
    case("@{0.28.0|0.28.1} $TF,keras ^py-keras@3.0.0", "use py-keras@:2"),
    case("@{0.28.0|0.28.1} $TF,keras ^py-tensorflow@2.16.1", "use py-tensorflow@:2.15"),
]
