# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""Turn what was selected for a Horovod build into the variables its build system reads.

The recipe (``package.py``) and the pip engine of ``./hvd`` both call
:func:`build_environment`, so that a Horovod built by either is the same.  This module
imports nothing outside the standard library.

Source of every variable: ``setup.py``, ``CMakeLists.txt`` and ``cmake/`` of Horovod 0.28.1;
documented in https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, FrozenSet, Mapping, Optional, Tuple

#: Frameworks with a compiled plugin of their own: Spack's name to Horovod's.
PLUGINS = {"tensorflow": "TENSORFLOW", "pytorch": "PYTORCH", "mxnet": "MXNET"}
#: Frameworks that need another one's plugin or none at all.
PURE_PYTHON = ("keras", "spark", "ray")
CONTROLLERS = ("mpi", "gloo")
OPERATIONS = ("nccl", "ddl", "ccl")
GPU_STACKS = ("cuda", "rocm")
NCCL_LINKS = ("shared", "static")

#: Variables that change a build by merely being set, and that a site's modules do set.
LEAKS = (
    # CMakeLists.txt: "if(DEFINED CCL_ROOT)" turns oneCCL on
    "CCL_ROOT",
    "CCL_CONFIGURATION",
    # setup.py: a pure-Python install without any plugin
    "HOROVOD_SKIP_COMPILE",
    # setup.py: -O0 and assertions
    "HOROVOD_DEBUG",
    # setup.py: another version string than the one that was asked for
    "HOROVOD_LOCAL_VERSION",
    # CMakeLists.txt: the operations that follow from the selection
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_GPU",
    "HOROVOD_GPU_OPERATIONS",
    "HOROVOD_GPU_ALLREDUCE",
    "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_ALLTOALL",
    "HOROVOD_GPU_REDUCESCATTER",
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_CUDA_HOME",
    "HOROVOD_ROCM_HOME",
    "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_INCLUDE",
    "HOROVOD_NCCL_LIB",
    "HOROVOD_NCCL_LINK",
    "HOROVOD_NVTX_INCLUDE",
    "HOROVOD_WITH_NVTX",
    "HOROVOD_WITHOUT_NVTX",
    "HOROVOD_WITH_MPI",
    "HOROVOD_WITHOUT_MPI",
    "HOROVOD_WITH_GLOO",
    "HOROVOD_WITHOUT_GLOO",
    "HOROVOD_WITH_TENSORFLOW",
    "HOROVOD_WITHOUT_TENSORFLOW",
    "HOROVOD_WITH_PYTORCH",
    "HOROVOD_WITHOUT_PYTORCH",
    "HOROVOD_WITH_MXNET",
    "HOROVOD_WITHOUT_MXNET",
)


class SelectionError(ValueError):
    """A selection that no Horovod can be built from; the message names the way out."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What is to be built, and where the parts are.

    Args:
        controllers: any of :data:`CONTROLLERS`, at least one.
        operations: any of :data:`OPERATIONS`.
        frameworks: any of :data:`PLUGINS` and :data:`PURE_PYTHON`.
        gpu: one of :data:`GPU_STACKS`, or None for a CPU build.
        prefixes: installation prefixes by Spack's package role: ``cuda``, ``rocm``,
            ``nccl`` (RCCL included), ``ccl`` (oneCCL), ``mpi``, ``cmake`` (the executable).
        nccl_link: one of :data:`NCCL_LINKS`.
        gpu_architectures: CUDA compute capabilities without a dot: ``("70", "80")``.
        architecture_flags: the compiler's flags for the target; must not be empty.
        jobs: parallel compile jobs.
    """

    controllers: FrozenSet[str]
    frameworks: FrozenSet[str]
    operations: FrozenSet[str] = frozenset()
    gpu: Optional[str] = None
    prefixes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nccl_link: str = "shared"
    gpu_architectures: Tuple[str, ...] = ()
    architecture_flags: str = ""
    jobs: int = 1


def build_environment(selection: Selection) -> Dict[str, Optional[str]]:
    """The build environment for ``selection``.

    Returns:
        Variable to value; None where the variable must not be set at all.

    Raises:
        SelectionError: the selection contradicts itself or names something unknown.
    """
    check(selection)
    variables: Dict[str, Optional[str]] = {name: None for name in LEAKS}
    variables.update(_build_system(selection))
    variables.update(_frameworks(selection))
    variables.update(_controllers(selection))
    variables.update(_operations(selection))
    return variables


def check(selection: Selection) -> None:
    """Refuse a selection that cannot be built.

    Raises:
        SelectionError: with the way out.
    """
    for what, chosen, known in (
        ("controller", selection.controllers, CONTROLLERS),
        ("operation", selection.operations, OPERATIONS),
        ("framework", selection.frameworks, (*PLUGINS, *PURE_PYTHON)),
        ("GPU stack", {selection.gpu} - {None}, GPU_STACKS),
        ("NCCL link mode", {selection.nccl_link}, NCCL_LINKS),
    ):
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise SelectionError(
                f"Horovod has no {what} '{unknown[0]}'; use one of {', '.join(known)}"
            )
    if not selection.controllers:
        raise SelectionError("Horovod requires a controller; use +mpi or +gloo")
    if selection.operations & {"nccl", "ddl"} and not selection.gpu:
        raise SelectionError("NCCL and DDL operations require a GPU; use +cuda or +rocm")
    if "ccl" in selection.operations and selection.gpu:
        raise SelectionError("oneCCL operations are for CPUs; use ~ccl with a GPU stack")
    if not selection.architecture_flags.strip():
        # cmake/Utilities.cmake takes an empty value for "unset" and asks -march=native
        raise SelectionError(
            "Architecture flags must not be empty: Horovod would probe the build machine; "
            "use for example -mtune=generic"
        )
    wrong = [arch for arch in selection.gpu_architectures if not arch.isdigit()]
    if selection.gpu == "cuda" and wrong:
        # horovod/common/ops/cuda/build_utils.py: int() of every entry
        raise SelectionError(
            f"Horovod takes plain compute capabilities only; use cuda_arch="
            f"{wrong[0].rstrip('af')} in place of {wrong[0]}"
        )


def _build_system(selection: Selection) -> Dict[str, Optional[str]]:
    variables: Dict[str, Optional[str]] = {
        "MAKEFLAGS": f"-j{selection.jobs}",
        "HOROVOD_BUILD_ARCH_FLAGS": selection.architecture_flags.strip(),
        # third_party/gloo asks for CMake 2.8.12, which CMake 4 refuses:
        # https://cmake.org/cmake/help/latest/envvar/CMAKE_POLICY_VERSION_MINIMUM.html
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }
    if "cmake" in selection.prefixes:
        # else setup.py may install CMake from the network
        variables["HOROVOD_CMAKE"] = selection.prefixes["cmake"]
    if "mpi" in selection.controllers and "mpi" in selection.prefixes:
        # https://cmake.org/cmake/help/latest/module/FindMPI.html: a hint before PATH
        variables["MPI_HOME"] = selection.prefixes["mpi"]
    return variables


def _frameworks(selection: Selection) -> Dict[str, Optional[str]]:
    wanted = set(selection.frameworks)
    if "keras" in wanted:
        # horovod.keras runs on the TensorFlow plugin
        wanted.add("tensorflow")
    return {
        f"HOROVOD_{'WITH' if name in wanted else 'WITHOUT'}_{plugin}": "1"
        for name, plugin in PLUGINS.items()
    }


def _controllers(selection: Selection) -> Dict[str, Optional[str]]:
    # CMake compares with "1"; HOROVOD_WITH_GLOO is not read since 0.20: Gloo is the default
    mpi = "HOROVOD_WITH_MPI" if "mpi" in selection.controllers else "HOROVOD_WITHOUT_MPI"
    variables: Dict[str, Optional[str]] = {mpi: "1"}
    if "gloo" not in selection.controllers:
        variables["HOROVOD_WITHOUT_GLOO"] = "1"
    return variables


def _operations(selection: Selection) -> Dict[str, Optional[str]]:
    variables: Dict[str, Optional[str]] = {}
    if "ccl" in selection.operations:
        variables["CCL_ROOT"] = selection.prefixes["ccl"]
        variables["HOROVOD_CPU_OPERATIONS"] = "CCL"
    if selection.gpu is None:
        # an NVTX header on the machine would be taken into a CPU build
        variables["HOROVOD_WITHOUT_NVTX"] = "1"
        return variables
    variables["HOROVOD_GPU"] = selection.gpu.upper()
    if selection.gpu == "cuda":
        variables["HOROVOD_CUDA_HOME"] = selection.prefixes["cuda"]
        if selection.gpu_architectures:
            variables["HOROVOD_BUILD_CUDA_CC_LIST"] = ",".join(selection.gpu_architectures)
    else:
        variables["HOROVOD_ROCM_HOME"] = selection.prefixes["rocm"]
    if "nccl" in selection.operations:
        # all five operations at once: allreduce, allgather, broadcast, alltoall, reducescatter
        variables["HOROVOD_GPU_OPERATIONS"] = "NCCL"
        variables["HOROVOD_NCCL_HOME"] = selection.prefixes["nccl"]
        variables["HOROVOD_NCCL_LINK"] = selection.nccl_link.upper()
    elif "ddl" in selection.operations:
        # DDL knows allreduce alone, and is no value of HOROVOD_GPU_OPERATIONS
        variables["HOROVOD_GPU_ALLREDUCE"] = "DDL"
    return variables
