# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

import hashlib
import pathlib
from typing import Optional

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

from . import build_flags


class PyHorovod(PythonPackage, CudaPackage, ROCmPackage):
    """Horovod is a distributed deep learning training framework for TensorFlow, Keras,
    PyTorch, and Apache MXNet."""

    homepage = "https://horovod.ai"
    pypi = "horovod/horovod-0.28.1.tar.gz"

    license("Apache-2.0")

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
    version("0.18.1", sha256="26a7751b090caabeba27808786b106cc672bc0aef3e7993361e99479c08beeb3")
    version("0.18.0", sha256="5182ca12a11a6dfa5215e8f00e3d873bdba01214077d5f08626b62cc453e3aa6")
    version("0.16.4", sha256="871de9f0dfef7ddda637ee78ce7d95494340f7f8eb9fbd0c3cf13df7e68c5812")

    variant("mpi", default=True, description="Control processes and run operations with MPI")
    variant("gloo", default=True, description="Control processes and run operations with Gloo")
    variant("nccl", default=False, description="Run operations on GPUs with NCCL or RCCL")
    variant("ddl", default=False, description="Run allreduce on GPUs with IBM DDL")
    variant("ccl", default=False, description="Run operations on CPUs with oneCCL")
    variant(
        "nccl_link",
        default="shared",
        values=build_flags.NCCL_LINKS,
        multi=False,
        description="How NCCL is linked",
        when="+nccl+cuda",
    )
    variant(
        "frameworks",
        default="pytorch",
        values=(*build_flags.PLUGINS, *build_flags.PURE_PYTHON),
        multi=True,
        description="Deep learning frameworks to build support for",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")

    # CMakeLists.txt
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L1
    depends_on("cmake@3.13:", type="build")
    # https://cmake.org/cmake/help/latest/manual/cmake-generators.7.html: the default on Linux
    depends_on("gmake", type="build")

    # setup.py
    with default_args(type=("build", "run")):
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: python_requires
        depends_on("python@3.6:")
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: require_list
        depends_on("py-cloudpickle")
        depends_on("py-psutil")
        depends_on("py-pyyaml")
        depends_on("py-packaging")
        depends_on("py-cffi@1.4:", when="frameworks=pytorch")

    # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: the build backend
    depends_on("py-setuptools", type="build")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/js_run.py#L23: distutils,
    # which the standard library has up to 3.11
    depends_on("py-setuptools", type="run", when="^python@3.12:")

    # Frameworks
    with default_args(type=("build", "link", "run")):
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/CMakeLists.txt: 1.5.0
        depends_on("py-torch@1.5:", when="frameworks=pytorch")
        # https://github.com/horovod/horovod/blob/v0.28.1/horovod/tensorflow/CMakeLists.txt
        depends_on("py-tensorflow@1.15:", when="frameworks=tensorflow")
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: mxnet_require_list
        depends_on("mxnet@1.4.1: +python", when="frameworks=mxnet")

    with default_args(type=("build", "run")):
        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: keras_require_list
        depends_on("py-keras@2.0.8,2.1.2:", when="frameworks=keras")

        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: spark_require_list
        with when("frameworks=spark"):
            depends_on("py-numpy")
            depends_on("py-petastorm@0.12:")
            depends_on("py-pyarrow@0.15:10")
            depends_on("py-fsspec@2021.07:")
            depends_on("py-pyspark@3:", when="^python@3.8:")
            depends_on("py-pyspark@2.3.2:", when="^python@:3.7")

        # https://github.com/horovod/horovod/blob/v0.28.1/setup.py: ray_require_list
        with when("frameworks=ray"):
            depends_on("py-ray")
            depends_on("py-aioredis@:1")
            depends_on("py-google-api-core@:2.8")

    # Controllers
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/mpi_operations.cc#L290:
    # MPI_Win_allocate_shared came with MPI 3
    depends_on("mpi@3:", when="+mpi")
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: Gloo on macOS
    depends_on("libuv@1.26:", when="+gloo platform=darwin")

    # Operations
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/nccl_operations.cc#L1209:
    # alltoall throws at run time below 2.7.0
    depends_on("nccl@2.7:", when="+nccl+cuda")
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt: find_package(rccl)
    depends_on("rccl", when="+nccl+rocm")
    # https://github.com/horovod/horovod/pull/2513: the oneCCL 1.0 interface
    depends_on("intel-oneapi-ccl@2021:", when="+ccl")

    for arch in CudaPackage.cuda_arch_values:
        # https://github.com/spack/spack/issues/12179: a variant is not passed on by itself
        depends_on(f"nccl cuda_arch={arch}", when=f"+nccl+cuda cuda_arch={arch}")
        depends_on(
            f"py-torch+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch} frameworks=pytorch"
        )

    # https://github.com/horovod/horovod/blob/v0.28.1/docs/concepts.rst: one of the two
    # negotiates which tensor comes next
    requires(
        "+mpi",
        "+gloo",
        policy="any_of",
        msg="Horovod requires a controller; use +mpi or +gloo",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/gpus.rst
    requires(
        "+cuda",
        "+rocm",
        policy="one_of",
        when="+nccl",
        msg="NCCL requires a GPU stack; use +cuda cuda_arch=<capability> or "
        "+rocm amdgpu_target=<gfx>",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/CMakeLists.txt#L202: HOROVOD_GPU is one
    conflicts("+cuda", when="+rocm", msg="Horovod supports one GPU stack; use +cuda or +rocm")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/cuda/build_utils.py#L111
    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="Horovod with CUDA requires a GPU architecture; use cuda_arch=<capability>, "
        "for example cuda_arch=80, see https://developer.nvidia.com/cuda-gpus",
    )
    for arch in CudaPackage.cuda_arch_values:
        if not arch.isdigit():
            # https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/ops/cuda/build_utils.py#L111
            conflicts(
                f"cuda_arch={arch}",
                msg="Horovod takes plain compute capabilities only; use "
                f"cuda_arch={arch.rstrip('af')} in place of {arch}",
            )
    # https://github.com/horovod/horovod/issues/638
    conflicts(
        "^[virtuals=mpi] openmpi@3.1.3",
        when="+mpi",
        msg="Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:, "
        "see https://github.com/horovod/horovod/issues/638",
    )
    # g++ -fsyntax-only horovod/common/ops/ddl_operations.cc: WaitForEvents takes 4 arguments
    conflicts(
        "+ddl",
        when="@0.24:",
        msg="IBM DDL does not compile with Horovod 0.24 and later; use +nccl",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/oneccl.rst
    conflicts("+ccl", when="+cuda", msg="oneCCL operations are for CPUs; use ~ccl or ~cuda")
    conflicts("+ccl", when="+rocm", msg="oneCCL operations are for CPUs; use ~ccl or ~rocm")
    # https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst: horovod.keras runs on
    # the TensorFlow plugin
    requires(
        "frameworks=tensorflow",
        when="frameworks=keras",
        msg="Keras requires the TensorFlow plugin; use frameworks=tensorflow,keras",
    )
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/ray/runner.py#L125:
    # RayExecutor sets HOROVOD_CONTROLLER=gloo
    requires("+gloo", when="frameworks=ray", msg="Ray requires the Gloo controller; use +gloo")
    # https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/CMakeLists.txt: a fatal error,
    # or CUDA in a CPU build
    with when("frameworks=pytorch"):
        conflicts(
            "^py-torch~cuda",
            when="+cuda",
            msg="Horovod with CUDA requires PyTorch with CUDA; use ^py-torch+cuda",
        )
        conflicts(
            "^py-torch+cuda",
            when="~cuda",
            msg="PyTorch with CUDA requires Horovod with CUDA; use +cuda or ^py-torch~cuda",
        )
    # https://github.com/horovod/horovod/issues/3996: 2.13 builds with cxx17.patch; the headers of
    # 2.14 ask for C++20
    conflicts(
        "^py-torch@2.14:",
        when="@:0.28.1",
        msg="Horovod 0.28.1 does not compile with PyTorch 2.14 and later; use py-torch@:2.13",
    )
    # https://github.com/tensorflow/tensorflow/issues/90026: headers of 2.19 need LLVM's
    conflicts(
        "^py-tensorflow@2.19:",
        when="@:0.28.1",
        msg="Horovod 0.28.1 does not compile with TensorFlow 2.19 and later; use "
        "py-tensorflow@:2.18",
    )
    # https://github.com/horovod/horovod/issues/4290: Keras 3 variables have no ref()
    conflicts(
        "^py-keras@3:",
        when="frameworks=keras @:0.28.1",
        msg="Horovod 0.28.1 does not support Keras 3; use py-keras@:2",
    )

    # https://github.com/horovod/horovod/issues/3996
    patch("cxx17.patch", when="@0.28.1")
    # https://github.com/horovod/horovod/pull/3984
    patch("mpirun.patch", when="@0.28.1")

    @property
    def selection(self) -> build_flags.Selection:
        """The spec as :mod:`build_flags` understands it."""
        spec = self.spec
        gpu: Optional[str] = next((g for g in build_flags.GPU_STACKS if f"+{g}" in spec), None)
        prefixes = {"cmake": spec["cmake"].command.path}
        if "+mpi" in spec:
            prefixes["mpi"] = str(spec["mpi"].prefix)
        if gpu == "cuda":
            prefixes["cuda"] = str(spec["cuda"].prefix)
        elif gpu == "rocm":
            # hip's prefix is <rocm>/hip up to ROCm 5, <rocm> later
            prefixes["rocm"] = str(spec["hip"].prefix)
        if "+nccl" in spec:
            prefixes["nccl"] = str(spec["nccl" if gpu == "cuda" else "rccl"].prefix)
        if "+ccl" in spec:
            prefixes["ccl"] = str(spec["intel-oneapi-ccl"].package.component_prefix)
        return build_flags.Selection(
            version=str(spec.version),
            controllers=frozenset(c for c in build_flags.CONTROLLERS if f"+{c}" in spec),
            operations=frozenset(o for o in build_flags.OPERATIONS if f"+{o}" in spec),
            frameworks=frozenset(spec.variants["frameworks"].value),
            gpu=gpu,
            gpu_mpi=spec.satisfies("gpu_ops=mpi"),
            prefixes=prefixes,
            nccl_link="static" if spec.satisfies("nccl_link=static") else "shared",
            gpu_architectures=spec.variants["cuda_arch"].value if gpu == "cuda" else (),
            architecture_flags=self.architecture_flags,
            jobs=make_jobs,
        )

    @property
    def architecture_flags(self) -> str:
        """The compiler's flags for the spec's target, as archspec knows them."""
        compiler = self.spec["cxx"]
        return self.spec.target.optimization_flags(compiler.name, str(compiler.version))

    def content_hash(self, content=None):
        # Spack hashes package.py alone; what build_flags says changes the build as well
        digest = hashlib.sha256(super().content_hash(content).encode())
        digest.update(pathlib.Path(build_flags.__file__).read_bytes())
        return digest.hexdigest()[:32]

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        for name, value in build_flags.build_environment(self.selection).items():
            if value is None:
                env.unset(name)
            else:
                env.set(name, value)

    @property
    def import_modules(self):
        modules = ["horovod", "horovod.common", "horovod.runner"]
        names = {"pytorch": "torch"}
        for framework in self.spec.variants["frameworks"].value:
            modules.append(f"horovod.{names.get(framework, framework)}")
        return modules
