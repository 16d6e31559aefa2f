# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""Turn what was selected for a Horovod build into the variables its build system reads.

The recipe (``package.py``) and the pip engine of ``./hvd`` both call
:func:`build_environment`, so that a Horovod built by either is the same.  This module
imports nothing outside the standard library.

What the variables mean: https://github.com/horovod/horovod/blob/v0.28.1/docs/install.rst.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, FrozenSet, Mapping, Optional, Tuple

#: Frameworks with a compiled plugin of their own: Spack's name to Horovod's.
PLUGINS = {"tensorflow": "TENSORFLOW", "pytorch": "PYTORCH", "mxnet": "MXNET"}
#: The Spack packages of those.
PACKAGES = {"tensorflow": "py-tensorflow", "pytorch": "py-torch", "mxnet": "mxnet"}
#: The modules below ``horovod`` of those.
MODULES = {"tensorflow": "tensorflow", "pytorch": "torch", "mxnet": "mxnet"}
#: Frameworks that need another one's plugin or none at all.
PURE_PYTHON = ("keras", "spark", "ray")
CONTROLLERS = ("mpi", "gloo")
OPERATIONS = ("nccl", "ddl", "ccl")
GPU_STACKS = ("cuda", "rocm")
NCCL_LINKS = ("shared", "static")

#: Variables of Horovod's build system: first and last release that reads each; an open end is
#: "".  A variable outside its range would be a silent no-op, or an error.  The variables of a
#: release that a selection does not set are unset: a site's modules may have set them.
#: Source: setup.py, CMakeLists.txt and cmake/ of each release; the tests read them again.
VARIABLES = {
    "CCL_CONFIGURATION": ("0.21.1", ""),
    # merely being set turns oneCCL on
    "CCL_ROOT": ("0.19.0", ""),
    "HOROVOD_ALLOW_MIXED_GPU_IMPL": ("0.16.4", ""),
    "HOROVOD_BUILD_ARCH_FLAGS": ("0.19.1", ""),
    "HOROVOD_BUILD_CUDA_CC_LIST": ("0.20.0", ""),
    "HOROVOD_CMAKE": ("0.19.0", ""),
    "HOROVOD_CPU_OPERATIONS": ("0.18.0", ""),
    "HOROVOD_CUDA_HOME": ("0.16.4", ""),
    "HOROVOD_CUDA_INCLUDE": ("0.16.4", "0.19.5"),
    "HOROVOD_CUDA_LIB": ("0.16.4", "0.19.5"),
    "HOROVOD_DDL_HOME": ("0.16.4", ""),
    "HOROVOD_DDL_INCLUDE": ("0.16.4", ""),
    "HOROVOD_DDL_LIB": ("0.16.4", ""),
    # -O0 and assertions
    "HOROVOD_DEBUG": ("0.23.0", ""),
    "HOROVOD_GPU": ("0.19.1", ""),
    "HOROVOD_GPU_ALLGATHER": ("0.16.4", ""),
    "HOROVOD_GPU_ALLREDUCE": ("0.16.4", ""),
    "HOROVOD_GPU_ALLTOALL": ("0.20.0", ""),
    "HOROVOD_GPU_BROADCAST": ("0.16.4", ""),
    "HOROVOD_GPU_OPERATIONS": ("0.20.0", ""),
    "HOROVOD_GPU_REDUCESCATTER": ("0.25.0", ""),
    # another version string than the one that was asked for
    "HOROVOD_LOCAL_VERSION": ("0.19.2", ""),
    "HOROVOD_MPICXX_SHOW": ("0.16.4", "0.19.5"),
    "HOROVOD_NCCL_HOME": ("0.16.4", ""),
    "HOROVOD_NCCL_INCLUDE": ("0.16.4", ""),
    "HOROVOD_NCCL_LIB": ("0.16.4", ""),
    "HOROVOD_NCCL_LINK": ("0.16.4", ""),
    "HOROVOD_NVTX_INCLUDE": ("0.22.0", ""),
    "HOROVOD_ROCM_HOME": ("0.19.1", ""),
    # a pure-Python install without any plugin
    "HOROVOD_SKIP_COMPILE": ("0.22.0", ""),
    "HOROVOD_WITHOUT_GLOO": ("0.18.0", ""),
    "HOROVOD_WITHOUT_MPI": ("0.18.0", ""),
    "HOROVOD_WITHOUT_MXNET": ("0.16.4", ""),
    "HOROVOD_WITHOUT_NVTX": ("0.22.0", ""),
    "HOROVOD_WITHOUT_PYTORCH": ("0.16.4", ""),
    "HOROVOD_WITHOUT_TENSORFLOW": ("0.16.4", ""),
    "HOROVOD_WITH_GLOO": ("0.18.0", "0.19.5"),
    "HOROVOD_WITH_MPI": ("0.18.0", ""),
    "HOROVOD_WITH_MXNET": ("0.16.4", ""),
    "HOROVOD_WITH_NVTX": ("0.22.0", ""),
    "HOROVOD_WITH_PYTORCH": ("0.16.4", ""),
    "HOROVOD_WITH_TENSORFLOW": ("0.16.4", ""),
    # Intel MLSL, before oneCCL: merely being set turns it on
    "MLSL_ROOT": ("0.16.4", "0.18.2"),
    "MXNET_USE_MKLDNN": ("0.16.4", ""),
    "MXNET_USE_ONEDNN": ("0.22.0", ""),
}


class SelectionError(ValueError):
    """A selection that no Horovod can be built from; the message names the way out."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What is to be built, and where the parts are.

    Args:
        version: Horovod's release, or "master".
        controllers: any of :data:`CONTROLLERS`, at least one.
        operations: any of :data:`OPERATIONS`.
        frameworks: any of :data:`PLUGINS` and :data:`PURE_PYTHON`.
        gpu: one of :data:`GPU_STACKS`, or None for a CPU build.
        gpu_mpi: run operations on GPUs with MPI, which must be GPU-aware.
        prefixes: installation prefixes by Spack's package role: ``cuda``, ``rocm``, ``ddl``,
            ``nccl`` (RCCL included), ``ccl`` (oneCCL), ``mpi``, ``cmake`` (the executable).
        nccl_link: one of :data:`NCCL_LINKS`.
        gpu_architectures: CUDA compute capabilities without a dot: ``("80", "90a")``.
        architecture_flags: the compiler's flags for the target; must not be empty.
        jobs: parallel compile jobs.
    """

    version: str
    controllers: FrozenSet[str]
    frameworks: FrozenSet[str]
    operations: FrozenSet[str] = frozenset()
    gpu: Optional[str] = None
    gpu_mpi: bool = False
    prefixes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nccl_link: str = "shared"
    gpu_architectures: Tuple[str, ...] = ()
    architecture_flags: str = ""
    jobs: int = 1

    def at_least(self, release: str) -> bool:
        """Whether the version is ``release`` or newer."""
        return _key(self.version) >= _key(release)

    def reads(self, variable: str) -> bool:
        """Whether the version's build system reads ``variable``."""
        first, last = VARIABLES[variable]
        return self.at_least(first) and (not last or _key(self.version) <= _key(last))


def _key(version: str) -> Tuple[float, ...]:
    """A key that orders versions; branches are newer than any release."""
    if not version[:1].isdigit():
        return (float("inf"),)
    return tuple(float(part) for part in version.split("."))


def build_environment(selection: Selection) -> Dict[str, Optional[str]]:
    """The build environment for ``selection``.

    Returns:
        Variable to value; None where the variable must not be set at all.

    Raises:
        SelectionError: the selection contradicts itself or names something unknown.
    """
    check(selection)
    wanted: Dict[str, str] = {}
    wanted.update(_frameworks(selection))
    wanted.update(_controllers(selection))
    wanted.update(_cpu_operations(selection))
    wanted.update(_gpu_operations(selection))
    if "cmake" in selection.prefixes:
        # else setup.py may install CMake from the network
        wanted["HOROVOD_CMAKE"] = selection.prefixes["cmake"]
    wanted["HOROVOD_BUILD_ARCH_FLAGS"] = selection.architecture_flags.strip()
    variables: Dict[str, Optional[str]] = {
        name: wanted.get(name) for name in VARIABLES if selection.reads(name)
    }
    variables.update(_tools(selection))
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
    if (selection.operations & {"nccl", "ddl"} or selection.gpu_mpi) and not selection.gpu:
        raise SelectionError("Operations on GPUs require a GPU stack; use +cuda or +rocm")
    if "nccl" in selection.operations and selection.gpu_mpi:
        raise SelectionError("NCCL and MPI operations on GPUs deadlock; use one of them")
    if "ccl" in selection.operations and selection.gpu:
        raise SelectionError("oneCCL operations are for CPUs; use ~ccl with a GPU stack")
    if selection.reads("HOROVOD_BUILD_ARCH_FLAGS") and not selection.architecture_flags.strip():
        # cmake/Utilities.cmake takes an empty value for "unset" and asks -march=native
        raise SelectionError(
            "Architecture flags must not be empty: Horovod would probe the build machine; "
            "use for example -mtune=generic"
        )
    wrong = [arch for arch in selection.gpu_architectures if not arch.isdigit()]
    if selection.gpu == "cuda" and wrong and not selection.at_least("0.25"):
        # cmake/build_utils.py: int() of every entry; cuda.patch is for those after
        raise SelectionError(
            f"Horovod before 0.25 takes plain compute capabilities only; use cuda_arch="
            f"{wrong[0].rstrip('af')} in place of {wrong[0]}"
        )


def _tools(selection: Selection) -> Dict[str, str]:
    """Variables that are make's, CMake's and PyTorch's, not Horovod's."""
    # FindCUDA, which Horovod 0.20 to 0.23 uses, races with itself:
    # https://github.com/horovod/horovod/issues/2543
    races = (
        selection.gpu == "cuda" and selection.at_least("0.20") and not selection.at_least("0.24")
    )
    variables = {
        "MAKEFLAGS": f"-j{1 if races else selection.jobs}",
        # third_party/gloo asks for CMake 2.8.12, which CMake 4 refuses:
        # https://cmake.org/cmake/help/latest/envvar/CMAKE_POLICY_VERSION_MINIMUM.html
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }
    if selection.gpu == "cuda":
        # torch.utils.cpp_extension would guess it from where nvcc is on PATH:
        # https://docs.pytorch.org/docs/stable/cpp_extension.html
        variables["CUDA_HOME"] = selection.prefixes["cuda"]
    if "mpi" in selection.controllers and "mpi" in selection.prefixes:
        # https://cmake.org/cmake/help/latest/module/FindMPI.html: a hint before PATH
        variables["MPI_HOME"] = selection.prefixes["mpi"]
    return variables


def _frameworks(selection: Selection) -> Dict[str, str]:
    wanted = set(selection.frameworks)
    if "keras" in wanted:
        # horovod.keras runs on the TensorFlow plugin
        wanted.add("tensorflow")
    return {
        f"HOROVOD_{'WITH' if name in wanted else 'WITHOUT'}_{plugin}": "1"
        for name, plugin in PLUGINS.items()
    }


def _controllers(selection: Selection) -> Dict[str, str]:
    # WITH makes a build fail that would silently go on without; CMake compares with "1"
    variables = {
        f"HOROVOD_{'WITH' if name in selection.controllers else 'WITHOUT'}_{name.upper()}": "1"
        for name in CONTROLLERS
    }
    if "mpi" in selection.controllers and "mpi" in selection.prefixes:
        variables["HOROVOD_MPICXX_SHOW"] = f"{selection.prefixes['mpi']}/bin/mpicxx -show"
    return variables


def _cpu_operations(selection: Selection) -> Dict[str, str]:
    if "ccl" not in selection.operations:
        return {}
    return {"CCL_ROOT": selection.prefixes["ccl"], "HOROVOD_CPU_OPERATIONS": "CCL"}


def _gpu_operations(selection: Selection) -> Dict[str, str]:
    if selection.gpu is None:
        # an NVTX header on the machine would be taken into a CPU build
        return {"HOROVOD_WITHOUT_NVTX": "1"}
    variables = {"HOROVOD_GPU": selection.gpu.upper()}
    if selection.gpu == "cuda":
        variables["HOROVOD_CUDA_HOME"] = selection.prefixes["cuda"]
        if selection.gpu_architectures:
            variables["HOROVOD_BUILD_CUDA_CC_LIST"] = ",".join(selection.gpu_architectures)
    else:
        variables["HOROVOD_ROCM_HOME"] = selection.prefixes["rocm"]
    if "nccl" in selection.operations:
        variables["HOROVOD_NCCL_HOME"] = selection.prefixes["nccl"]
        variables["HOROVOD_NCCL_LINK"] = selection.nccl_link.upper()
        variables.update(_on_gpus(selection, "NCCL"))
    elif "ddl" in selection.operations:
        variables["HOROVOD_DDL_HOME"] = selection.prefixes["ddl"]
        # DDL knows allreduce alone, and is no value of HOROVOD_GPU_OPERATIONS
        variables["HOROVOD_GPU_ALLREDUCE"] = "DDL"
    elif selection.gpu_mpi:
        variables.update(_on_gpus(selection, "MPI"))
    return variables


def _on_gpus(selection: Selection, library: str) -> Dict[str, str]:
    """Every operation that the version can run on GPUs with ``library``."""
    if selection.at_least("0.20"):
        # refused together with a variable for one operation
        return {"HOROVOD_GPU_OPERATIONS": library}
    operations = ["ALLREDUCE"]
    # https://github.com/horovod/horovod/pull/1579: broadcast with NCCL since 0.19.0
    if library == "MPI" or selection.at_least("0.19"):
        operations.append("BROADCAST")
    # https://github.com/horovod/horovod/pull/1952: allgather with NCCL since 0.20.0
    if library == "MPI":
        operations.append("ALLGATHER")
    return {f"HOROVOD_GPU_{operation}": library for operation in operations}
