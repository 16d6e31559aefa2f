"""build_flags: what Horovod's build system is told, without Spack."""

import pytest

from hvd import recipe

flags = recipe.load("py-horovod").build_flags


def selection(**changes):
    values = {
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
    assert built["HOROVOD_CUDA_HOME"] == "/cuda"
    assert built["HOROVOD_BUILD_CUDA_CC_LIST"] == "70,80"
    assert "HOROVOD_GPU_ALLREDUCE" not in built
    assert "HOROVOD_WITHOUT_NVTX" not in built


def test_rccl_on_rocm():
    built = environment(operations=frozenset({"nccl"}), gpu="rocm")
    assert built["HOROVOD_GPU"] == "ROCM"
    assert built["HOROVOD_ROCM_HOME"] == "/rocm"
    assert "HOROVOD_CUDA_HOME" not in built


def test_ddl_runs_allreduce_alone():
    built = environment(operations=frozenset({"ddl"}), gpu="cuda")
    assert built["HOROVOD_GPU_ALLREDUCE"] == "DDL"
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
        ({"operations": frozenset({"nccl"})}, "require a GPU; use +cuda or +rocm"),
        ({"operations": frozenset({"ccl"}), "gpu": "cuda"}, "use ~ccl"),
        ({"architecture_flags": " "}, "must not be empty"),
        ({"gpu": "cuda", "gpu_architectures": ("90a",)}, "use cuda_arch=90 in place of 90a"),
        ({"nccl_link": "both"}, "no NCCL link mode 'both'"),
    ],
)
def test_impossible_selections_name_the_way_out(changes, message):
    with pytest.raises(flags.SelectionError) as caught:
        flags.build_environment(selection(**changes))
    assert message in str(caught.value)


def test_every_variable_is_one_that_horovod_reads(horovod_sources):
    """A flag that the source does not know would be a silent no-op."""
    ours = set(flags.build_environment(selection())) | set(flags.LEAKS)
    not_horovods_own = {"MAKEFLAGS", "CMAKE_POLICY_VERSION_MINIMUM", "MPI_HOME"}
    # read by releases before 0.20 only; unset so that it does not stand in anyone's way
    not_horovods_own.add("HOROVOD_WITH_GLOO")
    unknown = [name for name in sorted(ours - not_horovods_own) if name not in horovod_sources]
    assert not unknown
