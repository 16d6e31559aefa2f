# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

import os
import re
import shlex
import shutil

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

#: Frameworks with a compiled plugin: the name in Horovod's variables, the Spack package, and the
#: module below ``horovod``.
PLUGINS = {
    "tensorflow": ("TENSORFLOW", "py-tensorflow", "tensorflow"),
    "pytorch": ("PYTORCH", "py-torch", "torch"),
    "mxnet": ("MXNET", "mxnet", "mxnet"),
}
#: What Horovod's build reads besides variables of its own.
LEAKS = ("CCL_CONFIGURATION", "CCL_ROOT", "MLSL_ROOT", "MXNET_USE_MKLDNN", "MXNET_USE_ONEDNN")


class PyHorovod(PythonPackage, CudaPackage, ROCmPackage):
    """Horovod is a distributed deep learning training framework for TensorFlow, Keras,
    PyTorch, and Apache MXNet."""

    homepage = "https://horovod.ai"
    pypi = "horovod/horovod-0.28.1.tar.gz"
    git = "https://github.com/horovod/horovod.git"
    submodules = True

    license("Apache-2.0")

    # CVE-2022-0315, CVE-2024-10190 and CVE-2026-31234 are patched below
    version("0.28.1", sha256="92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0")
    version("0.28.0", sha256="32bba0bdc9fc1bf0b2ba63950fbefce8d8be095a3a87d3977a3dc3f1eb12ffab")
    version("0.27.0", sha256="8a76a98266579de46a1b1cde53d5ec115fc163ffdaa65a8f771aee936e804b33")
    version("0.26.1", sha256="0079e4efb4ffe3f042e9e00470fbb457973903e748f75909de71e492d2474e94")
    version("0.26.0", sha256="c89dab945e38fec482e0a52a0b560e192e7abd137a9a6323f104f15ac9423f64")
    version("0.25.0", sha256="bc9fed57b67c1b55259671d2439cdbc93aa897ea6e5da459e11e7556972b2355")
    version("0.24.3", sha256="af24e4b1ed9adaa0db98f6375c023d438f65f116aa80ad5e7a321780362b3e7f")
    version("0.24.2", sha256="22d6c2f3967426810510113bc6fd93649aa23e6e47e040e0a5ced0f48c34fca5")
    version("0.24.1", sha256="260bd96b1c74c5e27f7fca8a53f5f01ee7bdbf3af536836a5da23ed773fd3390")
    version("0.24.0", sha256="16f77c96c5f90b699729f635619d4edc8cbb84b6bc6f3e13d213c252bf99be89")
    version("0.23.0", sha256="72ab3e5f59df6a000473999937e52e6831ad1a5e4e7bd23885a04bcdd4d8691c")
    version("0.22.1", sha256="c45bfcb9bd96852d79c62976eda12e9320b58b64f55bee3772877b3fc6243f2a")
    version("0.22.0", sha256="ed7526eeb5a9aca8a8a49a04a41a4648cb7b0a265857875fc5d6a04a739fdb37")
    version("0.21.3", sha256="dee8b2387b1ec9f54fe1737a95b992a52ce20cb3f1a4388017215fae14978f95")
    version("0.21.2", sha256="b9ea0b048327b14f1fe331a3c3b053127c0f2fe944c6ef434f1e4a7f95931fc2")
    version("0.21.1", sha256="874dd3ac469944464bb77e1a42296500d0028177183ad5ab5af8ec61a34a1ed7")
    version("0.21.0", sha256="89c28de73524216f2b9433ffd858f79151da6c6b9cf63c9698c4d0b009c13901")
    version("0.20.3", sha256="6ebc90d627af486d44335ed48489e1e8dc190607574758867c52e4e17d75a247")
    version("0.20.2", sha256="80aad735969b914bf03b950729dde652704a587118ed5d1fcb0bb79c64b42f6c")
    version("0.20.1", sha256="25566d939b771c49f558f5c28770d5976c9248f6a9a475773a8b6118d5dda758")
    version("0.20.0", sha256="88522b65d83cb9690193b200e2e8fd1e08864b27d72b7ff1bbc5e7b8ae4f32ed")
    version("0.19.5", sha256="428d9ba5ff277467be77e4e707d40b915f7d9e6920a2645f647fcb2cea59c366")
    version("0.19.4", sha256="b4bb14ce3cab5abf09790bb28d4e7b66ad67fb6dc520d760a060d989d9020d46")
    version("0.19.3", sha256="5e6ef552d2565f8ef144343ce835864a4baf2c8d05b8ad4f70c9f07416b52815")
    version("0.19.2", sha256="981f302ee8c71c3b7d0cb8007aced707ecdb44068f207f10c61fa610c6b61d85")
    version("0.19.1", sha256="2e7a609a985a54effead95512a568d5b94e2957cfc821c2bee5d49850fdd9ae3")
    version("0.19.0", sha256="478775ef5af7d33981d6114db4ad10c57ed69b8c3887b7a0d45b65fef924bf56")
    version("0.18.2", sha256="a8c9c48976a41ff04ed3d69eb92c59ff444cc414dd45ef047750eab25c03e803")

    # sticky: a default that no solver may change to get around a refusal below
    with default_args(sticky=True):
        variant("mpi", default=True, description="Control processes and run operations with MPI")
        variant("gloo", default=True, description="Control processes and run operations with Gloo")
        variant(
            "frameworks",
            default="pytorch",
            values=(*PLUGINS, "keras", "spark", "ray"),
            multi=True,
            description="Deep learning frameworks to build support for",
        )
        for stack in ("cuda", "rocm"):
            variant(
                "gpu_ops",
                default="none",
                values=("none", "mpi"),
                multi=False,
                description="Run operations on GPUs with a GPU-aware MPI, in place of NCCL",
                when=f"+{stack}",
            )
        variant(
            "ddl",
            default=False,
            description="Run allreduce on GPUs with IBM DDL",
            when="+cuda gpu_ops=none",
        )
        # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L246: allreduce on GPUs is
        # of one library
        for default, condition in (
            (True, "+cuda~ddl gpu_ops=none"),
            (False, "+cuda+ddl gpu_ops=none"),
            (True, "+rocm gpu_ops=none"),
        ):
            variant(
                "nccl",
                default=default,
                description="Run operations on GPUs with NCCL or RCCL",
                when=condition,
            )
        variant(
            "nccl_link",
            default="shared",
            values=("shared", "static"),
            multi=False,
            description="How NCCL is linked",
            when="+nccl+cuda",
        )
        # https://github.com/horovod/horovod/pull/2513: the interface of oneCCL 2021; its context
        # is initialized by MPI's, and its operations are for CPUs:
        # https://github.com/horovod/horovod/blob/v0.28.1/docs/oneccl.rst
        variant(
            "ccl",
            default=False,
            description="Run operations on CPUs with oneCCL",
            when="@0.21.1: +mpi~cuda~rocm",
        )

    depends_on("c", type="build")
    depends_on("cxx", type="build")

    # CMakeLists.txt
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L1
    depends_on("cmake@3.13:", type="build", when="@0.24:")
    # https://cmake.org/cmake/help/latest/release/3.21.html: the language HIP, in rocm.patch
    depends_on("cmake@3.21:", type="build", when="@0.28.0:0.28.1 +rocm")
    # https://github.com/horovod/horovod/blob/v0.23.0/CMakeLists.txt#L1
    depends_on("cmake@2.8.12:", type="build", when="@0.20:0.23")
    # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L1461: Gloo's own CMakeLists.txt
    depends_on("cmake@2.8.12:", type="build", when="@:0.19 +gloo")
    # https://cmake.org/cmake/help/latest/manual/cmake-generators.7.html: the default on Linux
    depends_on("gmake", type="build")

    # setup.py
    with default_args(type=("build", "run")):
        # https://github.com/horovod/horovod/blob/v0.20.0/setup.py: python_requires
        depends_on("python@3.6:", when="@0.20:")
        # https://docs.python.org/3.12/whatsnew/3.12.html#removed: distutils; patched from 0.24 on
        depends_on("python@:3.11", when="@:0.23")
        # https://docs.python.org/3.10/whatsnew/3.10.html#removed: collections.Iterable
        depends_on("python@:3.9", when="@:0.19.0")
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: require_list
        depends_on("py-cloudpickle")
        depends_on("py-psutil")
        depends_on("py-pyyaml")
        # https://github.com/yaml/pyyaml/blob/6.0.2/setup.py: python_requires
        depends_on("py-pyyaml@:6.0.1", when="^python@:3.7")
        # https://github.com/horovod/horovod/blob/v0.26.0/setup.py: require_list; and
        # distutils-0.24.patch imports it
        depends_on("py-packaging", when="@0.24:")
        # https://github.com/horovod/horovod/blob/v0.19.5/setup.py: require_list
        depends_on("py-six", when="@:0.19")
        # https://github.com/horovod/horovod/blob/v0.20.0/setup.py: require_list
        depends_on("py-dataclasses", when="@0.20: ^python@:3.6")
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py#L204-L206; nothing uses it, and
        # cffi.patch takes it out of what 0.28.1 requires
        depends_on("py-cffi@1.4:", when="@:0.28.0 frameworks=pytorch")

    # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: the build backend
    depends_on("py-setuptools", type="build")
    # https://github.com/conda-forge/horovod-feedstock/blob/main/recipe/meta.yaml: PyTorch's
    # cpp_extension imports pkg_resources.packaging
    depends_on("py-setuptools@:69", type="build", when="frameworks=pytorch ^py-torch@:2.0")

    # PyTorch
    with default_args(type=("build", "link", "run")), when("frameworks=pytorch"):
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/CMakeLists.txt
        depends_on("py-torch@1.5:", when="@0.25:")
        # https://github.com/horovod/horovod/pull/2086
        depends_on("py-torch@1.2:", when="@0.20:0.24")
        # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L1138
        depends_on("py-torch@0.4:", when="@:0.19")
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/CMakeLists.txt#L21:
        # a fatal error, or a GPU stack in a CPU build
        for stack in ("cuda", "rocm"):
            depends_on(f"py-torch+{stack}", when=f"+{stack}")
            depends_on(f"py-torch~{stack}", when=f"~{stack}")
    # https://github.com/horovod/horovod/issues/3996: 2.15 builds and runs with
    # cxx-standard.patch; 2.16 is not known
    conflicts(
        "^py-torch@2.16:",
        when="@0.28.1",
        msg="Horovod 0.28.1 is not known to compile with PyTorch 2.16 and later; use "
        "py-torch@:2.15",
    )
    # https://github.com/horovod/horovod/issues/3996: from 2.1 on it takes C++17 and 2.14 C++20;
    # cxx-standard.patch makes them compile, and no such build is known
    conflicts(
        "^py-torch@2.14:",
        when="@0.25:0.28.0",
        msg="Horovod before 0.28.1 is not known to work with PyTorch 2.14 and later; use "
        "py-torch@:2.13 or @0.28.1",
    )
    # https://github.com/horovod/horovod/issues/3996
    conflicts(
        "^py-torch@2.1:",
        when="@0.24",
        msg="Horovod 0.24 is not known to work with PyTorch 2.1 and later; use py-torch@:2.0 "
        "or @0.25:",
    )
    # https://github.com/horovod/horovod/issues/3449: the macro TORCH_VERSION
    conflicts(
        "^py-torch@1.11:",
        when="@:0.23",
        msg="Horovod 0.23 and before does not compile with PyTorch 1.11 and later; use "
        "py-torch@:1.10 or @0.24:",
    )

    # TensorFlow, and Keras on top of it
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: Keras uses its plugin
    for framework in ("tensorflow", "keras"):
        with default_args(type=("build", "link", "run")), when(f"frameworks={framework}"):
            # https://github.com/horovod/horovod/pull/2169
            depends_on("py-tensorflow@1.15:", when="@0.20:")
            # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L79
            depends_on("py-tensorflow@1.1:", when="@:0.19")
            # https://github.com/horovod/horovod/blob/v0.28.1/docs/troubleshooting.rst: a
            # framework and Horovod share one GPU stack
            for stack in ("cuda", "rocm"):
                depends_on(f"py-tensorflow+{stack}", when=f"+{stack}")
                depends_on(f"py-tensorflow~{stack}", when=f"~{stack}")
    # Compiles of every plugin source of each release with the headers of each TensorFlow, those
    # of 0.28 patched, and 2.22 is not known; 2.4 for 0.20 and before by
    # https://github.com/horovod/horovod/pull/2381
    for releases, refused in (
        ("0.28", "2.22"),
        ("0.27", "2.13"),
        ("0.25:0.26", "2.12"),
        ("0.24", "2.10"),
        ("0.23", "2.9"),
        ("0.22.1", "2.7"),
        ("0.21:0.22.0", "2.6"),
        (":0.20", "2.4"),
    ):
        last = f"2.{int(refused.partition('.')[2]) - 1}"
        # g++ -fsyntax-only horovod/tensorflow/*.cc
        conflicts(
            f"^py-tensorflow@{refused}:",
            when=f"@{releases}",
            msg=f"Horovod @{releases} does not support TensorFlow {refused} and later; use "
            f"py-tensorflow@:{last}" + (" or @0.28.1" if releases != "0.28" else ""),
        )
    with default_args(type=("build", "run")):
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: keras_require_list
        depends_on("py-keras@2.0.8,2.1.2:", when="frameworks=keras")
    for backend in ("jax", "torch"):
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/keras/__init__.py
        conflicts(
            f"^py-keras backend={backend}",
            when="frameworks=keras",
            msg="Horovod supports Keras on TensorFlow; use ^py-keras backend=tensorflow",
        )
    # https://github.com/horovod/horovod/issues/4290: patched in 0.28.1
    conflicts(
        "^py-keras@3:",
        when="@:0.28.0 frameworks=keras",
        msg="Horovod before 0.28.1 does not support Keras 3; use py-keras@:2 or @0.28.1",
    )
    # https://blog.tensorflow.org/2024/03/whats-new-in-tensorflow-216.html: tf.keras is Keras 3
    conflicts(
        "^py-tensorflow@2.16:",
        when="@:0.28.0 frameworks=keras",
        msg="Horovod before 0.28.1 does not support the Keras 3 of TensorFlow 2.16 and later; "
        "use py-tensorflow@:2.15 or @0.28.1",
    )

    # MXNet
    with default_args(type=("build", "link", "run")), when("frameworks=mxnet"):
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/mxnet/CMakeLists.txt: and
        # mxnet/base.h of MXNet 2 is another
        depends_on("mxnet@1.4.1:1 +python")
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/mxnet/CMakeLists.txt
        depends_on("mxnet+cuda", when="+cuda")
        depends_on("mxnet~cuda", when="~cuda")
    # https://github.com/apache/mxnet/issues/6257
    conflicts(
        "+rocm",
        when="frameworks=mxnet",
        msg="MXNet does not support AMD GPUs; use ~rocm or other frameworks",
    )
    # https://github.com/apache/mxnet/issues/21165: numpy.bool; builtin's mxnet 1.9 has no NumPy
    depends_on("py-numpy@:1.23", type=("build", "run"), when="frameworks=mxnet")

    # Spark
    with default_args(type=("build", "run")), when("frameworks=spark"):
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: spark_require_list
        depends_on("py-numpy")
        depends_on("py-pyarrow@0.15:")
        depends_on("py-petastorm@0.12:", when="@0.26:")
        # https://github.com/horovod/horovod/blob/v0.22.0/setup.py: spark_require_list
        depends_on("py-petastorm@0.11:", when="@0.22:0.25")
        # https://github.com/horovod/horovod/blob/v0.21.1/setup.py: spark_require_list
        depends_on("py-petastorm@0.9.8:", when="@0.21.1:0.21")
        # https://github.com/horovod/horovod/blob/v0.20.0/setup.py: spark_require_list
        depends_on("py-petastorm@0.9:0.9.2,0.9.4:", when="@0.20:0.21.0")
        # https://github.com/horovod/horovod/blob/v0.19.2/setup.py: spark_require_list
        depends_on("py-petastorm@0.9:", when="@0.19.2:0.19")
        # https://github.com/horovod/horovod/blob/v0.19.1/setup.py: spark_require_list
        depends_on("py-petastorm@0.8.2", when="@0.19.1")
        # https://github.com/horovod/horovod/blob/v0.19.0/setup.py: spark_require_list
        depends_on("py-petastorm@0.7.7:", when="@:0.19.0")
        # https://github.com/horovod/horovod/pull/3830
        depends_on("py-pyarrow@:10", when="@0.27:")
        # https://github.com/horovod/horovod/blob/v0.24.2/setup.py: spark_require_list
        depends_on("py-fsspec@2021.07:", when="@0.24.2:")
        # https://github.com/horovod/horovod/blob/v0.22.1/setup.py: spark_require_list
        depends_on("py-fsspec", when="@0.22.1:0.24.1")
        # https://github.com/horovod/horovod/blob/v0.21.0/setup.py: spark_require_list
        depends_on("py-h5py@:2", when="@0.21:0.23")
        # https://github.com/horovod/horovod/blob/v0.19.5/setup.py: spark_require_list
        depends_on("py-h5py@2.9:", when="@:0.20")
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: pyspark_require_list
        depends_on("py-pyspark@3:", when="^python@3.8:")
        depends_on("py-pyspark@2.3.2:", when="^python@:3.7")
        # https://github.com/apache/spark/pull/43184: distutils
        depends_on("python@:3.11", when="^py-pyspark@3.4:3")
        # https://github.com/apache/spark/pull/38987: random.shuffle() with two arguments
        depends_on("python@:3.10", when="^py-pyspark@:3.3")
        # https://github.com/horovod/horovod/pull/3520: horovod.spark.lightning alone imports it
        depends_on("py-pytorch-lightning@1.3.8:1.5.9", when="@0.25: frameworks=pytorch")
        # https://github.com/horovod/horovod/blob/v0.24.0/setup.py: pytorch_require_list
        depends_on("py-pytorch-lightning@1.3.8", when="@0.24 frameworks=pytorch")
        # https://github.com/horovod/horovod/blob/v0.22.0/setup.py: pytorch_require_list
        depends_on("py-pytorch-lightning", when="@0.22:0.23 frameworks=pytorch")

    # Ray
    with default_args(type=("build", "run")), when("frameworks=ray"):
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: ray_require_list
        depends_on("py-ray")
        # https://github.com/horovod/horovod/blob/v0.23.0/setup.py: ray_require_list
        depends_on("py-aioredis@:1", when="@0.23:")
        # https://github.com/horovod/horovod/blob/v0.26.0/setup.py: ray_require_list
        depends_on("py-google-api-core@:2.8", when="@0.26:")
    # https://github.com/horovod/horovod/releases/tag/v0.20.0: Horovod on Ray
    conflicts(
        "frameworks=ray",
        when="@:0.19",
        msg="Horovod does not support Ray before 0.20; use @0.20:",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/ray/runner.py#L125:
    # RayExecutor sets HOROVOD_CONTROLLER=gloo
    conflicts("~gloo", when="frameworks=ray", msg="Ray requires the Gloo controller; use +gloo")

    # Controllers
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/concepts.rst: one of the two
    # negotiates which tensor comes next
    conflicts("~mpi~gloo", msg="Horovod requires a controller; use +mpi or +gloo")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/mpi_operations.cc#L290:
    # MPI_Win_allocate_shared came with MPI 3
    depends_on("mpi@3:", when="+mpi")
    # https://github.com/horovod/horovod/issues/638
    conflicts(
        "^[virtuals=mpi] openmpi@3.1.3",
        when="+mpi",
        msg="Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:, "
        "see https://github.com/horovod/horovod/issues/638",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/mpi/mpi_context.cc#L157:
    # asks for MPI_THREAD_MULTIPLE; from 3.0 on Open MPI always has it
    conflicts(
        "^[virtuals=mpi] openmpi@:2~thread_multiple",
        when="+mpi",
        msg="Horovod requires MPI_THREAD_MULTIPLE; use openmpi+thread_multiple or openmpi@4:",
    )
    with when("+gloo platform=darwin"):
        # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: Gloo on macOS
        depends_on("libuv@1.26:")
        # https://github.com/facebookincubator/gloo/blob/main/cmake/Dependencies.cmake
        depends_on("pkgconfig", type="build")
    # https://github.com/horovod/horovod/pull/2254
    conflicts(
        "+gloo",
        when="@:0.20.0 platform=darwin",
        msg="Horovod does not support Gloo on macOS before 0.20.1; use ~gloo or @0.20.1:",
    )

    # Operations on GPUs
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L202: HOROVOD_GPU is one
    conflicts("+cuda", when="+rocm", msg="Horovod supports one GPU stack; use +cuda or +rocm")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/operations.cc#L201: tensors
    # on GPUs go through the host
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/mpi_ops_v2.cc#L810: a
    # reducescatter does not wait until its tensor is copied there, before 0.28.1
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L191: no HIP is compiled
    for stack, others in (("cuda", "~nccl~ddl"), ("rocm", "~nccl")):
        conflicts(
            others,
            when=f"+{stack} gpu_ops=none",
            msg=f"Horovod with GPUs requires operations on GPUs; use +nccl, gpu_ops=mpi or "
            f"~{stack}",
        )
    # https://github.com/horovod/horovod/blob/v0.28.1/cmake/build_utils.py#L111
    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="Horovod with CUDA requires a GPU architecture; use cuda_arch=<capability>, for "
        "example cuda_arch=80, see https://developer.nvidia.com/cuda-gpus, or for AMD GPUs "
        "+rocm amdgpu_target=<gfx>",
    )
    # https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html
    conflicts(
        "amdgpu_target=none",
        when="+rocm",
        msg="Horovod with ROCm requires a GPU architecture; use amdgpu_target=<gfx>, "
        "for example amdgpu_target=gfx90a",
    )
    for arch in CudaPackage.cuda_arch_values:
        if not arch.isdigit():
            # https://github.com/horovod/horovod/blob/v0.24.3/cmake/build_utils.py#L111
            conflicts(
                f"cuda_arch={arch}",
                when="@:0.24",
                msg="Horovod before 0.25 takes plain compute capabilities only; use "
                f"cuda_arch={arch.rstrip('af')} in place of {arch}",
            )
    for arch in CudaPackage.cuda_arch_values:
        # https://github.com/spack/spack/issues/12179: a variant is not passed on by itself
        with when(f"+cuda cuda_arch={arch}"):
            depends_on(f"nccl cuda_arch={arch}", when="+nccl")
            depends_on(f"py-torch cuda_arch={arch}", when="frameworks=pytorch")
            depends_on(f"py-tensorflow cuda_arch={arch}", when="frameworks=tensorflow")
            depends_on(f"py-tensorflow cuda_arch={arch}", when="frameworks=keras")
            depends_on(f"mxnet cuda_arch={arch}", when="frameworks=mxnet")
    for gfx in ROCmPackage.amdgpu_targets:
        # https://github.com/spack/spack/issues/12179
        with when(f"+rocm amdgpu_target={gfx}"):
            depends_on(f"rccl amdgpu_target={gfx}", when="+nccl")
            depends_on(f"py-torch amdgpu_target={gfx}", when="frameworks=pytorch")
            depends_on(f"py-tensorflow amdgpu_target={gfx}", when="frameworks=tensorflow")
            depends_on(f"py-tensorflow amdgpu_target={gfx}", when="frameworks=keras")
    # https://cmake.org/cmake/help/latest/module/FindCUDA.html: what 0.20 to 0.23 find CUDA with
    # was given up before CUDA 12; no build of an older release with CUDA 12 is known
    depends_on("cuda@:11", when="@:0.23 +cuda")
    # https://github.com/horovod/horovod/blob/v0.19.1/setup.py: HOROVOD_GPU=ROCM came with it
    conflicts(
        "+rocm",
        when="@:0.19.0",
        msg="Horovod does not support ROCm before 0.19.1; use @0.19.1:",
    )
    # https://github.com/ROCm/legacy-rocm-build/issues/3987: patched from 0.28.0 on
    conflicts(
        "^hip@6:",
        when="@:0.27 +rocm",
        msg="Horovod before 0.28.0 does not compile with ROCm 6 and later; use hip@:5 and "
        "rccl@:5, or @0.28:",
    )

    # NCCL and RCCL
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/nccl_operations.cc#L1209:
    # alltoall throws at run time below 2.7.0
    depends_on("nccl@2.7:", when="@0.20: +nccl+cuda")
    # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L502
    depends_on("nccl@2:", when="@:0.19 +nccl+cuda")
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt: find_package(rccl)
    depends_on("rccl", when="+nccl+rocm")
    # https://github.com/horovod/horovod/issues/2601
    conflicts(
        "^nccl@2.8.3",
        when="@0.20: +nccl",
        msg="NCCL 2.8.3 hangs in alltoall; use nccl@:2.8.2 or nccl@2.8.4:",
    )
    # https://github.com/horovod/horovod/issues/3831
    conflicts(
        "^nccl@2.12:",
        when="@:0.27 nccl_link=static",
        msg="Static NCCL 2.12 and later crashes in Horovod before 0.28; use nccl_link=shared",
    )

    # MPI on GPUs
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/gpus.rst
    conflicts(
        "~mpi",
        when="gpu_ops=mpi",
        msg="Operations on GPUs with MPI require MPI; use +mpi or gpu_ops=none",
    )
    for stack, brand in (("cuda", "CUDA"), ("rocm", "ROCm")):
        # https://github.com/horovod/horovod/blob/v0.28.1/docs/gpus.rst: a GPU-aware MPI; those
        # without the variant are built without, mvapich2 with --disable-cuda
        requires(
            f"^[virtuals=mpi] openmpi+{stack}",
            f"^[virtuals=mpi] mpich+{stack}",
            f"^[virtuals=mpi] cray-mpich+{stack}",
            f"^[virtuals=mpi] mvapich-plus+{stack}",
            policy="any_of",
            when=f"gpu_ops=mpi +{stack}",
            msg=f"gpu_ops=mpi requires a {brand}-aware MPI; use ^openmpi+{stack}, "
            f"^mpich+{stack}, ^cray-mpich+{stack} or ^mvapich-plus+{stack}, or +nccl",
        )

    # IBM DDL
    with when("+ddl"):
        # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L522
        depends_on("ibm-ddl")
        # https://github.com/horovod/horovod/pull/1093: DDL starts and ends Spectrum MPI
        conflicts("~mpi", msg="IBM DDL requires the MPI controller; use +mpi or ~ddl")
        requires(
            "^[virtuals=mpi] spectrum-mpi",
            msg="IBM DDL requires IBM Spectrum MPI; use ^[virtuals=mpi] spectrum-mpi or ~ddl",
        )
        # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L246
        conflicts("+nccl", msg="Allreduce on GPUs is of one library; use ~ddl or ~nccl")
        # https://www.ibm.com/support/knowledgecenter/SS5SF7_1.6.0/navigation/pai_getstarted_ddl.html
        # not requires("target=ppc64le:"): Spack 1.2 then finds no solution for another machine
        for family in ("x86_64", "aarch64"):
            conflicts(
                f"target={family}:",
                msg="IBM DDL requires a POWER machine; use target=power8le or target=power9le",
            )

    # oneCCL
    # https://github.com/horovod/horovod/pull/2513: the oneCCL 1.0 interface
    depends_on("intel-oneapi-ccl@2021:", when="+ccl")
    # https://github.com/spack/spack-packages/blob/v2026.06.0/repos/spack_repo/builtin/packages/intel_oneapi_ccl/package.py#L29
    # which brings Intel MPI; Spack takes the first that it can, and any other where a user says so
    requires(
        "^[virtuals=mpi] intel-oneapi-mpi",
        "^[virtuals=mpi] intel-mpi",
        "+mpi",
        policy="any_of",
        when="+ccl",
        msg="oneCCL requires MPI; use +mpi or ~ccl",
    )

    # Compilers
    for framework, package, since, gcc in (
        # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: C++17
        ("TensorFlow", "py-tensorflow", "2.10", 8),
        # https://github.com/horovod/horovod/issues/3996: C++17
        ("PyTorch", "py-torch", "2.1", 8),
        # https://github.com/pytorch/pytorch/pull/120126: more of C++17
        ("PyTorch", "py-torch", "2.2.2", 9),
        # https://github.com/pytorch/pytorch#prerequisites: C++20
        ("PyTorch", "py-torch", "2.14", 11),
    ):
        # g++ -fsyntax-only with the headers of the first release that needs it, and the one before
        conflicts(
            f"%gcc@:{gcc - 1}",
            when=f"^{package}@{since}:",
            msg=f"{framework} {since} and later need GCC {gcc} or later; use %gcc@{gcc}:",
        )

    # Patches
    # https://github.com/horovod/horovod/issues/3996
    patch("patches/cxx-standard.patch", when="@0.24:0.28.1")
    # https://github.com/horovod/horovod/pull/3984
    patch("patches/mpirun.patch", when="@0.23.0:0.28.1")
    # https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html
    patch("patches/mpirun-0.21.2.patch", when="@0.21.2:0.22.1")
    patch("patches/mpirun-0.20.patch", when="@0.20.0:0.21.1")
    patch("patches/mpirun-0.19.1.patch", when="@0.19.1:0.19.5")
    patch("patches/mpirun-0.18.2.patch", when="@:0.19.0")
    # https://github.com/horovod/horovod/pull/3946
    patch("patches/iface.patch", when="@0.21.2:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/js_run.py#L47
    patch("patches/jsrun.patch", when="@0.21.2:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/js_run.py#L133
    patch("patches/jsrun-rankfile.patch", when="@0.24.0:0.28.1")
    # https://nvd.nist.gov/vuln/detail/CVE-2022-0315
    patch("patches/cve-2022-0315.patch", when="@0.20.0:0.23.0")
    patch("patches/cve-2022-0315-0.19.2.patch", when="@0.19.2:0.19.5")
    # https://github.com/horovod/horovod/issues/3166
    patch("patches/lsf.patch", when="@0.20.0:0.28.1")
    patch("patches/lsf-0.19.2.patch", when="@0.19.2:0.19.5")
    # https://docs.python.org/3.12/whatsnew/3.12.html#removed
    patch("patches/distutils.patch", when="@0.26.0:0.28.1")
    patch("patches/distutils-0.24.patch", when="@0.24.0:0.25.0")
    # https://numpy.org/doc/stable/release/1.24.0-notes.html#expired-deprecations
    patch("patches/numpy.patch", when="@0.23.0:0.28.1")
    patch("patches/numpy-0.19.patch", when="@0.19.0:0.22.1")
    # https://github.com/horovod/horovod/issues/4290
    patch("patches/keras_3.patch", when="@0.28.1")
    # https://nvd.nist.gov/vuln/detail/CVE-2026-31234
    patch("patches/cve-2026-31234-0.19.patch", when="@0.19")
    patch("patches/cve-2026-31234.patch", when="@0.20:0.28.1")
    patch("patches/cve-2026-31234-launch-0.19.0.patch", when="@0.19.0:0.19.1")
    patch("patches/cve-2026-31234-launch-0.19.2.patch", when="@0.19.2:0.19")
    patch("patches/cve-2026-31234-launch-0.20.patch", when="@0.20")
    patch("patches/cve-2026-31234-launch-0.21.patch", when="@0.21:0.24")
    patch("patches/cve-2026-31234-launch-0.25.patch", when="@0.25:0.28.1")
    # https://nvd.nist.gov/vuln/detail/CVE-2024-10190
    patch("patches/cve-2024-10190.patch", when="@0.20:0.28.1")
    patch("patches/rendezvous-key.patch", when="@0.20:0.28.1")
    # https://github.com/horovod/horovod/pull/2839: its test_horovod_reinit
    patch("patches/rendezvous-finished.patch", when="@0.23.0:0.28.1")
    # https://github.com/horovod/horovod/issues/3923
    patch("patches/gloo.patch", when="@:0.28.0")
    # https://github.com/horovod/horovod/pull/3750
    patch("patches/gloo-torch.patch", when="@0.20:0.26.1 +gloo frameworks=pytorch")
    # https://github.com/horovod/horovod/pull/3957
    patch("patches/headers.patch", when="@:0.20")
    patch("patches/headers-0.21.patch", when="@0.21:0.28.1")
    # https://github.com/horovod/horovod/pull/3985
    patch("patches/local-gradients.patch", when="@0.27.0:0.28.1")
    # https://github.com/horovod/horovod/pull/4293
    patch("patches/sparse-group.patch", when="@0.27.0:0.28.1")
    # https://github.com/horovod/horovod/pull/4298
    patch("patches/several-frameworks.patch", when="@0.23.0:0.28.1")
    # https://github.com/horovod/horovod/pull/3619
    patch("patches/eigen.patch", when="@0.21:0.25 target=aarch64:")
    # https://github.com/google/flatbuffers/pull/7227
    patch("patches/span.patch", when="@0.23:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.25.0/horovod/torch/mpi_ops_v2.cc#L60
    patch("patches/integral-type.patch", when="@0.24")
    # https://github.com/horovod/horovod/pull/1835
    patch("patches/fma.patch", when="@0.19.0:0.19.1")
    # https://github.com/horovod/horovod/issues/3956
    patch("patches/flatbuffers.patch", when="@0.22.0:0.28.1")
    # https://github.com/horovod/horovod/pull/2101
    patch("patches/waiting.patch", when="@0.24.0:0.28.1")
    # https://github.com/horovod/horovod/issues/3405
    patch("patches/zero-grad.patch", when="@0.20.0:0.28.1")
    # https://github.com/horovod/horovod/issues/4047
    patch("patches/bfloat16.patch", when="@0.28.0:0.28.1")
    # https://github.com/horovod/horovod/issues/499
    patch("patches/transport.patch", when="@0.20.0:0.28.1")
    # https://github.com/horovod/horovod/issues/2015
    patch("patches/gloo-timeout.patch", when="@0.21.1:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/gloo_controller.cc#L116
    patch("patches/gloo-exchange.patch", when="@0.26.0:0.28.1")
    # https://github.com/facebookincubator/gloo/blob/d96897b339a07087f588223ca216e75f64e3ca58/gloo/reduce_scatter.h#L416
    patch("patches/gloo-reduce-scatter.patch", when="@0.25.0:0.28.0 +gloo")
    # https://github.com/facebookincubator/gloo/blob/d96897b339a07087f588223ca216e75f64e3ca58/gloo/transport/tcp/pair.cc#L707
    patch("patches/gloo-lock.patch", when="@0.24.0:0.28.1 +gloo")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/http_store.cc#L62
    patch("patches/http-store.patch", when="@0.20.0:0.28.0")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/gloo_context.cc#L290
    patch("patches/gloo-mesh.patch", when="@0.23.0:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L88
    patch("patches/symbols.patch", when="@0.20.1:0.28.1")
    # https://github.com/horovod/horovod/issues/4302
    patch("patches/tensorflow.patch", when="@0.28.0:0.28.1")
    # https://github.com/horovod/horovod/issues/3449
    patch("patches/cuda.patch", when="@0.25.0:0.28.1")
    # https://github.com/NVIDIA/nccl/issues/1950
    patch("patches/nccl-average.patch", when="@0.26.0:0.28.1 +nccl+cuda")
    # https://github.com/ROCm/legacy-rocm-build/issues/3987
    patch("patches/rocm.patch", when="@0.28.0:0.28.1 +rocm")
    # https://github.com/horovod/horovod/pull/2009
    patch("patches/ddl-0.20.patch", when="@0.20.0:0.23.0 +ddl")
    patch("patches/ddl-0.24.patch", when="@0.24.0:0.28.1 +ddl")
    # https://github.com/horovod/horovod/pull/1649
    patch("patches/ddl-ops-0.24.patch", when="@0.24.0:0.25.0 +ddl")
    patch("patches/ddl-ops-0.26.patch", when="@0.26.0:0.28.1 +ddl")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/CMakeLists.txt#L88
    patch("patches/common-objects.patch", when="@0.28.0:0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/mpi_ops_v2.cc#L26
    patch("patches/torch-headers.patch", when="@0.28.0:0.28.1")
    # https://github.com/horovod/horovod/issues/1774
    patch("patches/torch-optimizer.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2805
    patch("patches/torch-optimizer-state.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/3471
    patch("patches/join.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/3491
    patch("patches/torch-tensors.patch", when="@0.28.1")
    # https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/ops.html
    patch("patches/mean.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2654
    patch("patches/torch-gradients.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/mpi_ops_v2.cc#L46
    patch("patches/torch-names.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/compression.py#L49
    patch("patches/compression.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/functions.py#L223
    patch("patches/object-names.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/mpi_operations.cc#L420
    patch("patches/large-counts.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/operations.cc#L1954
    patch("patches/alltoall-splits.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/operations.cc#L436-L440
    patch("patches/gloo-operations.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/4021
    patch("patches/process-sets.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/elastic/driver.py#L210-L238
    patch("patches/elastic-driver.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/elastic.py#L141-L144
    patch("patches/elastic-state.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/3413
    patch("patches/ray-executor.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/ray/runner.py#L103-L131
    patch("patches/ray-rendezvous.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/ray/runner.py#L579-L599
    patch("patches/ray-callbacks.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/__init__.py#L382-L417
    patch("patches/tf-names.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2654
    patch("patches/tf-gradients.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2120
    patch("patches/tf-tape.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/4290
    patch("patches/keras-optimizer.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/functions.py#L31-L66
    patch("patches/tf-broadcast.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2550
    patch("patches/tf-elastic.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/_keras/callbacks.py#L62-L106
    patch("patches/keras-callbacks.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/sync_batch_norm.py#L33-L52
    patch("patches/tf-sync-batch-norm.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/__init__.py#L561-L624
    patch("patches/tf-missing-gradients.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2893
    patch("patches/keras-2-optimizer.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2097
    patch("patches/launcher-processes.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/util.py#L69-L138
    patch("patches/adasum-gpus.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/spark/runner.py#L280-L296
    patch("patches/spark-errors.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/spark/gloo_run.py#L57-L103
    patch("patches/spark-rendezvous.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/spark/torch/remote.py#L164-L179
    patch("patches/spark-estimators.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/mpi_ops.cc#L626-L643
    patch("patches/groups.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/mpi_ops_v2.cc#L97-L110
    patch("patches/torch-completion.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/sync_batch_norm.py#L100-L135
    patch("patches/torch-sync-batch-norm.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/setup.py#L204-L206
    patch("patches/cffi.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/logging.h#L38-L49
    patch("patches/source-paths.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/half.cc#L66-L81
    patch("patches/gloo-float16.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/gloo_operations.cc#L139-L149
    patch("patches/gloo-parts.patch", when="@0.28.1")
    # https://github.com/facebookincubator/gloo/blob/d96897b339a07087f588223ca216e75f64e3ca58/gloo/transport/tcp/pair.cc#L1036-L1095
    patch("patches/gloo-messages.patch", when="@0.28.1 +gloo")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/common.cc#L202-L208
    patch("patches/out-of-place.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/gloo_context.cc#L67-L93
    patch("patches/gloo-start.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/launch.py#L747-L757
    patch("patches/launcher-start.patch", when="@0.28.1")
    # https://man.openbsd.org/ssh_config#ServerAliveInterval
    patch("patches/ssh-keepalive.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/elastic/registration.py#L115-L140
    patch("patches/silent-workers.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2431
    # https://github.com/horovod/horovod/issues/2852
    patch("patches/nics.patch", when="@0.28.1")
    # https://www.open-mpi.org/faq/?category=running#mpirun-prefix
    patch("patches/mpirun-prefix.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py#L286-L292
    patch("patches/launch-errors.patch", when="@0.28.1")
    # https://github.com/open-mpi/ompi/blob/v4.1.8/orte/mca/oob/tcp/oob_tcp_component.c
    patch("patches/mpirun-keepalive.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/2402
    patch("patches/remote-ranks.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/mpi_ops.py#L278
    patch("patches/process-set-id.patch", when="@0.28.1")
    # https://github.com/facebookincubator/gloo/blob/d96897b339a07087f588223ca216e75f64e3ca58/gloo/transport/tcp/pair.cc#L1188-L1228
    patch("patches/gloo-lost-peer.patch", when="@0.28.1 +gloo")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/mpi_ops.py#L254
    patch("patches/torch-direct.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/mpi_operations.cc#L56-L66
    patch("patches/mpi-large-tensors.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/issues/3661
    patch("patches/tf-types.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/driver/driver_service.py#L77-L91
    patch("patches/elastic-unreachable.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/timeline.cc#L298-L328
    patch("patches/timeline-writer.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/nccl_operations.cc#L1259
    patch("patches/nccl-reducescatter.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/operations.cc#L1807-L1808
    patch("patches/reducescatter-mean.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py#L261-L263
    patch("patches/launcher-hosts.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py#L80-L104
    patch("patches/launcher-commands.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/common/util/safe_shell_exec.py
    patch("patches/launcher-output.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/elastic/driver.py#L240-L272
    patch("patches/elastic-ends.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/util/cache.py#L70-L99
    patch("patches/launcher-cache.patch", when="@0.28.1")

    @property
    def parallel(self) -> bool:
        # https://github.com/horovod/horovod/issues/2543: FindCUDA races with itself
        return not self.spec.satisfies("@0.20:0.23 +cuda")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: a site's module may
        # have set any of them, and CCL_ROOT turns oneCCL on by being set
        for name in os.environ:
            if name.startswith("HOROVOD_") or name in LEAKS:
                env.unset(name)
        self._set_up_tools(env)
        self._set_up_frameworks(env)
        self._set_up_controllers(env)
        self._set_up_operations(env)

    def _set_up_tools(self, env: EnvironmentModifications) -> None:
        if self.spec.satisfies("@0.20:") or self.spec.satisfies("+gloo"):
            # else setup.py may install CMake from the network
            env.set("HOROVOD_CMAKE", self.spec["cmake"].command.path)
        # third_party/gloo asks for CMake 2.8.12, which CMake 4 refuses:
        # https://cmake.org/cmake/help/latest/envvar/CMAKE_POLICY_VERSION_MINIMUM.html
        env.set("CMAKE_POLICY_VERSION_MINIMUM", "3.5")
        # else cmake/Utilities.cmake asks `gcc -march=native`; Spack's compiler wrapper has the
        # same flags, and a compiler that archspec does not know takes one that changes nothing
        env.set("HOROVOD_BUILD_ARCH_FLAGS", microarchitecture_flags(self.spec, "cxx") or "-fPIC")
        # pip closes the pipes of an older make's jobserver, and make would go on with one job
        if not self.parallel or "--jobserver-auth=fifo" not in os.environ.get("MAKEFLAGS", ""):
            env.set("MAKEFLAGS", f"-j{make_jobs}")

    def _set_up_frameworks(self, env: EnvironmentModifications) -> None:
        for name, (variable, _, _) in PLUGINS.items():
            env.set(f"HOROVOD_{'WITH' if name in self.plugins else 'WITHOUT'}_{variable}", "1")
        if "mxnet" in self.plugins:
            include = self.spec["mxnet"].prefix.include
            # https://github.com/apache/mxnet/blob/1.9.1/python/mxnet/libinfo.py finds a wheel's
            if os.path.isdir(join_path(include, "mxnet")):
                env.set("MXNET_INCLUDE_PATH", include)
                env.set("MXNET_LIBRARY_PATH", self.spec["mxnet"].libs[0])

    def _set_up_controllers(self, env: EnvironmentModifications) -> None:
        # WITH makes a build fail that would go on without, in silence
        for name in ("mpi", "gloo"):
            chosen = self.spec.satisfies(f"+{name}")
            env.set(f"HOROVOD_{'WITH' if chosen else 'WITHOUT'}_{name.upper()}", "1")
        if self.spec.satisfies("+mpi"):
            # https://cmake.org/cmake/help/latest/module/FindMPI.html: a hint before PATH
            env.set("MPI_HOME", self._mpi_prefix)
            # https://github.com/horovod/horovod/blob/v0.19.5/setup.py#L350
            env.set("HOROVOD_MPICXX_SHOW", f"{self._mpi_prefix}/bin/mpicxx -show")

    def _set_up_operations(self, env: EnvironmentModifications) -> None:
        spec = self.spec
        if spec.satisfies("+ccl"):
            env.set("HOROVOD_CPU_OPERATIONS", "CCL")
            ccl = spec["intel-oneapi-ccl"].package.component_prefix
            env.set("CCL_ROOT", ccl)
            # https://github.com/oneapi-src/oneAPI-samples/issues/1636: to 2021.10, beside one for
            # GPUs; from 2021.11 on lib/libccl.so is the one for GPUs, and needs SYCL's runtime
            for configuration in ("cpu_icc", "cpu", "ccl/cpu/lib"):
                if os.path.exists(join_path(ccl, "lib", configuration, "libccl.so")):
                    env.set("CCL_CONFIGURATION", configuration)
        if spec.satisfies("+cuda"):
            env.set("HOROVOD_GPU", "CUDA")
            env.set("HOROVOD_CUDA_HOME", spec["cuda"].prefix)
            env.set("HOROVOD_BUILD_CUDA_CC_LIST", ",".join(spec.variants["cuda_arch"].value))
            # https://docs.pytorch.org/docs/stable/cpp_extension.html: else by nvcc on PATH
            env.set("CUDA_HOME", spec["cuda"].prefix)
        elif spec.satisfies("+rocm"):
            env.set("HOROVOD_GPU", "ROCM")
            env.set("HOROVOD_ROCM_HOME", self._rocm_prefix)
            # rocm.patch; https://cmake.org/cmake/help/latest/envvar/HIPCXX.html: Clang itself
            env.set("HOROVOD_BUILD_ROCM_ARCH_LIST", ",".join(spec.variants["amdgpu_target"].value))
            env.set("HIPCXX", join_path(spec["llvm-amdgpu"].prefix, "bin", "clang++"))
        else:
            # an NVTX header on the machine would be taken into a CPU build
            env.set("HOROVOD_WITHOUT_NVTX", "1")
        if spec.satisfies("+ddl"):
            env.set("HOROVOD_DDL_HOME", spec["ibm-ddl"].prefix)
            # DDL knows allreduce alone, and is no value of HOROVOD_GPU_OPERATIONS
            env.set("HOROVOD_GPU_ALLREDUCE", "DDL")
        elif spec.satisfies("+nccl"):
            env.set("HOROVOD_NCCL_HOME", spec["nccl" if "+cuda" in spec else "rccl"].prefix)
            link = "static" if spec.satisfies("nccl_link=static") else "shared"
            env.set("HOROVOD_NCCL_LINK", link.upper())
            self._run_on_gpus(env, "NCCL")
        elif spec.satisfies("gpu_ops=mpi"):
            self._run_on_gpus(env, "MPI")

    def _run_on_gpus(self, env: EnvironmentModifications, library: str) -> None:
        """Run every operation on GPUs that the release can run with ``library``."""
        if self.spec.satisfies("@0.20:"):
            # refused together with a variable for one operation
            env.set("HOROVOD_GPU_OPERATIONS", library)
            return
        env.set("HOROVOD_GPU_ALLREDUCE", library)
        # https://github.com/horovod/horovod/pull/1579: broadcast with NCCL since 0.19.0
        if library == "MPI" or self.spec.satisfies("@0.19:"):
            env.set("HOROVOD_GPU_BROADCAST", library)
        # https://github.com/horovod/horovod/pull/1952: allgather with NCCL since 0.20.0
        if library == "MPI":
            env.set("HOROVOD_GPU_ALLGATHER", library)

    @property
    def plugins(self):
        """The frameworks with a compiled plugin, of :data:`PLUGINS`."""
        chosen = set(self.spec.variants["frameworks"].value)
        if "keras" in chosen:
            # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst
            chosen.add("tensorflow")
        return [name for name in PLUGINS if name in chosen]

    @property
    def _mpi_prefix(self) -> str:
        # intel-oneapi-mpi is <prefix>/mpi/<version>
        mpi = self.spec["mpi"]
        return str(getattr(mpi.package, "component_prefix", mpi.prefix))

    @property
    def _rocm_prefix(self) -> str:
        # to 0.27 FindROCM.cmake adds /hip, which is where ROCm 5 has it, and hip's prefix may be
        # either
        prefix = str(self.spec["hip"].prefix)
        return os.path.dirname(prefix) if os.path.basename(prefix) == "hip" else prefix

    def flag_handler(self, name, flags):
        # https://docs.nersc.gov/development/programming-models/mpi/cray-mpich/#cuda-aware-mpi:
        # without its library MPI_Init aborts
        if self.spec.satisfies("gpu_ops=mpi ^[virtuals=mpi] cray-mpich"):
            flags = [*flags, *self.spec["mpi"].package.gtl_lib.get(name, [])]
        return flags, None, None

    @property
    def import_modules(self):
        frameworks = self.spec.variants["frameworks"].value
        modules = [PLUGINS[name][2] if name in PLUGINS else name for name in frameworks]
        return ["horovod", "horovod.common", *(f"horovod.{name}" for name in modules)]

    def _check_build(self):
        """What ``horovodrun --check-build`` prints; it exits with 0 whatever that is."""
        directories = [join_path(self.prefix, d) for d in (python_platlib, python_purelib)]
        path = os.pathsep.join([*directories, os.environ.get("PYTHONPATH", "")])
        return self.spec["python"].command(
            self.prefix.bin.horovodrun,
            *("--check-build", "--verbose"),
            output=str,
            error=str,
            # https://github.com/horovod/horovod/pull/3272: before 0.25, it ends by os._exit(),
            # which loses what is not flushed
            extra_env={"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        )

    def _differences(self, output):
        built = {name.lower() for name in re.findall(r"\[X\] (\S+)", output)}
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/__init__.py: it can be
        # imported without its plugin, and is listed then, from 0.22 on
        if "Extension horovod.torch has not been built" in output:
            built.discard("pytorch")
        operations = ("mpi", "gloo", "nccl", "ddl", "ccl")
        asked = {name for name in operations if f"+{name}" in self.spec} | set(self.plugins)
        wrong = [f"without {name}" for name in sorted(asked - built)]
        wrong += [f"with {name}" for name in sorted(built - asked)]
        if f"Horovod v{self.spec.version}:" not in output:
            wrong.append(f"not as version {self.spec.version}")
        return wrong

    @run_after("install")
    def require_what_was_asked_for(self):
        """Horovod's build goes on without some of what it does not find."""
        # what is compiled for another machine does not run on this one
        if self.spec.target <= host_platform().default_target():
            output = self._check_build()
            wrong = self._differences(output)
            if wrong:
                raise InstallError(f"Horovod was built {', '.join(wrong)}", output)

    def test_check_build(self):
        """horovodrun --check-build lists what the spec asks for"""
        wrong = self._differences(self._check_build())
        assert not wrong, f"Horovod was built {', '.join(wrong)}"

    def test_allreduce_mpi(self):
        """two ranks sum, started by this site's MPI launcher"""
        if "~mpi" in self.spec:
            raise SkipTest("Horovod was built without MPI")
        launcher = self._launcher()
        if not launcher:
            raise SkipTest(
                "no launcher here: set HOROVOD_TEST_LAUNCHER, for example to 'srun -n 2', or run "
                "this inside a job"
            )
        self._allreduce("mpi", launcher)

    def test_allreduce_gloo(self):
        """two ranks sum, started by horovodrun --gloo"""
        if "~gloo" in self.spec:
            raise SkipTest("Horovod was built without Gloo")
        horovodrun = [self.prefix.bin.horovodrun, "--gloo", "-np", "2", "-H", "localhost:2"]
        self._allreduce("gloo", horovodrun)

    def _allreduce(self, controller, launcher):
        program = join_path(self.test_suite.current_test_data_dir, "allreduce.py")
        python = self.spec["python"].command.path
        environment = {
            "HOROVOD_CONTROLLER": controller,
            "HOROVOD_CPU_OPERATIONS": "CCL" if "+ccl" in self.spec else controller.upper(),
            **self._open_mpi_here(),
        }
        for module in (PLUGINS[name][2] for name in self.plugins):
            with test_part(self, f"test_allreduce_{controller}_{module}", purpose=module):
                launch = Executable(launcher[0])
                output = launch(
                    *launcher[1:],
                    *(python, program, module),
                    output=str,
                    error=str,
                    extra_env=environment,
                    timeout=300,
                )
                for rank in range(2):
                    expected = f"rank {rank} of 2: allreduce with {module} is right"
                    assert expected in output, f"'{expected}' is not in the output:\n{output}"

    def _open_mpi_here(self):
        """What lets Open MPI 4 and 5 start two ranks on a node or in a container."""
        # with more ranks than cores
        environment = {
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        if os.geteuid() == 0:
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        # https://github.com/open-mpi/ompi/blob/v4.1.8/orte/mca/plm/rsh/plm_rsh_component.c:
        # mpiexec stops if it finds neither, though it starts no rank elsewhere
        if not (shutil.which("ssh") or shutil.which("rsh")):
            environment["OMPI_MCA_plm_rsh_agent"] = "/bin/false"
        return environment

    def _launcher(self):
        """The command that starts two ranks here; empty where there is none."""
        chosen = os.environ.get("HOROVOD_TEST_LAUNCHER")
        if chosen:
            return shlex.split(chosen)
        # the scheduler's own, inside one of its jobs
        for job, launcher in (
            ("SLURM_JOB_ID", ("srun", "-n", "2")),
            ("LSB_JOBID", ("jsrun", "-n", "2", "-a", "1", "-c", "1")),
        ):
            if job in os.environ and shutil.which(launcher[0]):
                return list(launcher)
        mpiexec = join_path(self._mpi_prefix, "bin", "mpiexec")
        return [mpiexec, "-n", "2"] if os.access(mpiexec, os.X_OK) else []
