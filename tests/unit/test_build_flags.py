"""build_flags: what Horovod's build system is told, without Spack."""

import re

import pytest

from hvd import recipe

flags = recipe.load("py-horovod").build_flags


def selection(**changes):
    values = {
        "version": "0.28.1",
        "controllers": frozenset({"mpi", "gloo"}),
        "frameworks": frozenset({"pytorch"}),
        "architecture_flags": "-march=x86-64-v3 -mtune=generic",
        "prefixes": {
            "cmake": "/cmake/bin/cmake",
            "mpi": "/mpi",
            "cuda": "/cuda",
            "nccl": "/nccl",
            "rocm": "/rocm",
            "ccl": "/ccl",
            "ddl": "/ddl",
        },
    }
    return flags.Selection(**{**values, **changes})


def environment(**changes):
    built = flags.build_environment(selection(**changes))
    return {name: value for name, value in built.items() if value is not None}


def test_cpu_build_with_both_controllers():
    assert environment(jobs=4) == {
        "MAKEFLAGS": "-j4",
        "HOROVOD_BUILD_ARCH_FLAGS": "-march=x86-64-v3 -mtune=generic",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "HOROVOD_CMAKE": "/cmake/bin/cmake",
        "MPI_HOME": "/mpi",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_NVTX": "1",
    }


@pytest.mark.parametrize(
    ("controllers", "present", "absent"),
    [
        ({"mpi"}, {"HOROVOD_WITH_MPI", "HOROVOD_WITHOUT_GLOO"}, {"HOROVOD_WITHOUT_MPI"}),
        ({"gloo"}, {"HOROVOD_WITHOUT_MPI"}, {"HOROVOD_WITH_MPI", "MPI_HOME"}),
        ({"mpi", "gloo"}, {"HOROVOD_WITH_MPI"}, {"HOROVOD_WITHOUT_GLOO", "HOROVOD_WITHOUT_MPI"}),
    ],
)
def test_controllers(controllers, present, absent):
    built = environment(controllers=frozenset(controllers))
    assert present <= set(built)
    assert not absent & set(built)


def test_nccl_on_cuda_runs_every_operation_and_links_shared():
    built = environment(operations=frozenset({"nccl"}), gpu="cuda", gpu_architectures=("70", "80"))
    assert built["HOROVOD_GPU"] == "CUDA"
    assert built["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert built["HOROVOD_NCCL_LINK"] == "SHARED"
    assert built["HOROVOD_NCCL_HOME"] == "/nccl"
    assert built["HOROVOD_CUDA_HOME"] == built["CUDA_HOME"] == "/cuda"
    assert built["HOROVOD_BUILD_CUDA_CC_LIST"] == "70,80"
    assert "HOROVOD_GPU_ALLREDUCE" not in built
    assert "HOROVOD_WITHOUT_NVTX" not in built


def test_capabilities_with_a_letter():
    """cuda.patch"""
    built = environment(version="0.25.0", gpu="cuda", gpu_architectures=("80", "90a"))
    assert built["HOROVOD_BUILD_CUDA_CC_LIST"] == "80,90a"


def test_rccl_on_rocm():
    built = environment(operations=frozenset({"nccl"}), gpu="rocm")
    assert built["HOROVOD_GPU"] == "ROCM"
    assert built["HOROVOD_ROCM_HOME"] == "/rocm"
    assert "HOROVOD_CUDA_HOME" not in built


def test_ddl_runs_allreduce_alone():
    built = environment(operations=frozenset({"ddl"}), gpu="cuda")
    assert built["HOROVOD_GPU_ALLREDUCE"] == "DDL"
    assert built["HOROVOD_DDL_HOME"] == "/ddl"
    assert "HOROVOD_GPU_OPERATIONS" not in built


def test_oneccl():
    built = environment(operations=frozenset({"ccl"}))
    assert built["CCL_ROOT"] == "/ccl"
    assert built["HOROVOD_CPU_OPERATIONS"] == "CCL"


def test_what_a_site_sets_does_not_leak_in():
    built = flags.build_environment(selection())
    for name in ("CCL_ROOT", "HOROVOD_GPU_OPERATIONS", "HOROVOD_CUDA_HOME", "HOROVOD_WITHOUT_MPI"):
        assert name in built and built[name] is None


def test_keras_brings_the_tensorflow_plugin():
    built = environment(frameworks=frozenset({"keras"}))
    assert built["HOROVOD_WITH_TENSORFLOW"] == "1"
    assert built["HOROVOD_WITHOUT_PYTORCH"] == "1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controllers": frozenset()}, "requires a controller; use +mpi or +gloo"),
        ({"controllers": frozenset({"pmi"})}, "no controller 'pmi'; use one of mpi, gloo"),
        ({"frameworks": frozenset({"jax"})}, "no framework 'jax'"),
        ({"operations": frozenset({"nccl"})}, "require a GPU stack; use +cuda or +rocm"),
        ({"gpu_mpi": True}, "require a GPU stack; use +cuda or +rocm"),
        ({"operations": frozenset({"nccl"}), "gpu": "cuda", "gpu_mpi": True}, "deadlock"),
        ({"operations": frozenset({"ccl"}), "gpu": "cuda"}, "use ~ccl"),
        ({"architecture_flags": " "}, "must not be empty"),
        (
            {"version": "0.24.3", "gpu": "cuda", "gpu_architectures": ("90a",)},
            "use cuda_arch=90 in place of 90a",
        ),
        ({"nccl_link": "both"}, "no NCCL link mode 'both'"),
    ],
)
def test_impossible_selections_name_the_way_out(changes, message):
    with pytest.raises(flags.SelectionError) as caught:
        flags.build_environment(selection(**changes))
    assert message in str(caught.value)


def test_mpi_on_gpus():
    built = environment(gpu="cuda", gpu_mpi=True)
    assert built["HOROVOD_GPU_OPERATIONS"] == "MPI"
    assert "HOROVOD_NCCL_HOME" not in built


ON_GPUS = {
    # release: variables for NCCL, variables for MPI
    "0.16.4": ({"ALLREDUCE"}, {"ALLREDUCE", "ALLGATHER", "BROADCAST"}),
    "0.18.2": ({"ALLREDUCE"}, {"ALLREDUCE", "ALLGATHER", "BROADCAST"}),
    "0.19.0": ({"ALLREDUCE", "BROADCAST"}, {"ALLREDUCE", "ALLGATHER", "BROADCAST"}),
    "0.19.5": ({"ALLREDUCE", "BROADCAST"}, {"ALLREDUCE", "ALLGATHER", "BROADCAST"}),
    "0.20.0": ({"OPERATIONS"}, {"OPERATIONS"}),
    "0.28.1": ({"OPERATIONS"}, {"OPERATIONS"}),
    "master": ({"OPERATIONS"}, {"OPERATIONS"}),
}


@pytest.mark.parametrize("version", ON_GPUS)
@pytest.mark.parametrize("library", ["NCCL", "MPI"])
def test_operations_on_gpus_of_each_release(version, library):
    mpi = library == "MPI"
    operations = frozenset() if mpi else frozenset({"nccl"})
    built = environment(version=version, gpu="cuda", gpu_mpi=mpi, operations=operations)
    set_ = {name: value for name, value in built.items() if name.startswith("HOROVOD_GPU_")}
    assert set_ == {f"HOROVOD_GPU_{op}": library for op in ON_GPUS[version][mpi]}


@pytest.mark.parametrize(
    ("version", "jobs"), [("0.19.5", 8), ("0.20.0", 1), ("0.23.0", 1), ("0.24.0", 8)]
)
def test_findcuda_builds_one_file_at_a_time(version, jobs):
    assert environment(version=version, gpu="cuda", jobs=8)["MAKEFLAGS"] == f"-j{jobs}"
    assert environment(version=version, jobs=8)["MAKEFLAGS"] == "-j8"


def test_mpi_is_found_through_its_wrapper_before_cmake():
    assert environment(version="0.19.5")["HOROVOD_MPICXX_SHOW"] == "/mpi/bin/mpicxx -show"
    assert "HOROVOD_MPICXX_SHOW" not in environment(version="0.20.0")


#: make's, CMake's and PyTorch's variables; Horovod does not name them.
TOOLS = {"MAKEFLAGS", "CMAKE_POLICY_VERSION_MINIMUM", "MPI_HOME", "CUDA_HOME"}
SELECTIONS = {
    "cpu": {},
    "mpi alone": {"controllers": frozenset({"mpi"})},
    "gloo alone": {"controllers": frozenset({"gloo"})},
    "tensorflow": {"frameworks": frozenset({"tensorflow", "keras", "mxnet"})},
    "ccl": {"operations": frozenset({"ccl"})},
    "nccl on cuda": {
        "operations": frozenset({"nccl"}),
        "gpu": "cuda",
        "gpu_architectures": ("80",),
    },
    "nccl on rocm": {"operations": frozenset({"nccl"}), "gpu": "rocm"},
    "mpi on cuda": {"gpu_mpi": True, "gpu": "cuda"},
    "ddl on cuda": {"operations": frozenset({"ddl"}), "gpu": "cuda"},
}


@pytest.mark.parametrize("chosen", SELECTIONS.values(), ids=SELECTIONS)
def test_nothing_is_said_that_a_release_does_not_read(horovod_build_systems, chosen):
    """A variable that the source does not know would be a silent no-op, or an error."""
    unknown = [
        f"{version}: {name}"
        for version, text in horovod_build_systems.items()
        for name in flags.build_environment(selection(version=version, **chosen))
        if name not in TOOLS and not re.search(rf"\b{name}\b", text)
    ]
    assert not unknown


def test_the_table_is_what_the_releases_read(horovod_build_systems):
    wrong = [
        f"{version}: {name}"
        for version, text in horovod_build_systems.items()
        for name in flags.VARIABLES
        if bool(re.search(rf"\b{name}\b", text)) != selection(version=version).reads(name)
    ]
    assert not wrong


def test_the_table_has_every_variable_that_decides_about_a_build(horovod_build_systems):
    """Else a new one could leak in from a site's modules."""
    named = set()
    for text in horovod_build_systems.values():
        named |= set(re.findall(r"\bHOROVOD_[A-Z_]+[A-Z]\b", text))
    # a C++ macro, not a variable of the environment
    assert named - set(flags.VARIABLES) == {"HOROVOD_CPU_OPERATIONS_DEFAULT"}
