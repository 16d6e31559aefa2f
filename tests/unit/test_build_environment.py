"""The variables that the recipe builds with, as the pip engine asks for them."""

import os
import re
import subprocess
import sys
import types

import pytest

from hvd.model import recipe, specs

RECIPE = recipe.load("py-horovod")
FLAGS = "-march=x86-64-v3 -mtune=generic"
PREFIXES = {"cmake": "/cmake/bin/cmake", "intel-oneapi-ccl": "/ccl", "ibm-ddl": "/ddl"}
PREFIXES.update({name: f"/{name}" for name in ("mpi", "cuda", "nccl", "rccl", "mxnet")})
PREFIXES["llvm-amdgpu"] = "/opt/rocm/llvm"
CUDA = "+cuda cuda_arch=80"
ROCM = "+rocm amdgpu_target=gfx90a"


def environment(text="", version="0.28.1", jobs=4, hip="/opt/rocm", flags=FLAGS):
    spec = RECIPE.complete(specs.parse(f"py-horovod@{version} {text}"))
    return RECIPE.build_environment(spec, {**PREFIXES, "hip": hip}, flags, jobs)


def package_of(text):
    """The recipe's package for a spec."""
    package = RECIPE.module.PyHorovod()
    spec = RECIPE.complete(specs.parse(f"py-horovod@0.28.1 {text}"))
    package.spec = recipe.ConcreteSpec(spec, PREFIXES)
    return package


@pytest.fixture(autouse=True)
def no_jobserver(monkeypatch):
    monkeypatch.delenv("MAKEFLAGS", raising=False)


def test_a_build_for_cpus_with_both_controllers():
    assert environment() == {
        "MAKEFLAGS": "-j4",
        "HOROVOD_BUILD_ARCH_FLAGS": FLAGS,
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "HOROVOD_CMAKE": "/cmake/bin/cmake",
        "MPI_HOME": "/mpi",
        "HOROVOD_MPICXX_SHOW": "/mpi/bin/mpicxx -show",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_NVTX": "1",
    }


BUILDS = {
    # spec: what is set, and what is not
    "+mpi~gloo": ({"HOROVOD_WITH_MPI": "1", "HOROVOD_WITHOUT_GLOO": "1", "MPI_HOME": "/mpi"}, ""),
    "~mpi+gloo": ({"HOROVOD_WITHOUT_MPI": "1"}, "HOROVOD_WITH_MPI MPI_HOME"),
    # 0.19 needs CMake for Gloo alone, and the recipe depends on it then
    "@0.19.5 ~gloo": ({}, "HOROVOD_CMAKE"),
    "@0.19.5 +gloo": ({"HOROVOD_CMAKE": "/cmake/bin/cmake"}, ""),
    "+cuda cuda_arch=70,80": (
        {
            "HOROVOD_GPU": "CUDA",
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_NCCL_LINK": "SHARED",
            "HOROVOD_NCCL_HOME": "/nccl",
            "HOROVOD_CUDA_HOME": "/cuda",
            "CUDA_HOME": "/cuda",
            "HOROVOD_BUILD_CUDA_CC_LIST": "70,80",
        },
        "HOROVOD_GPU_ALLREDUCE HOROVOD_WITHOUT_NVTX",
    ),
    f"{CUDA} nccl_link=static": ({"HOROVOD_NCCL_LINK": "STATIC"}, ""),
    ROCM: (
        {
            "HOROVOD_GPU": "ROCM",
            "HOROVOD_ROCM_HOME": "/opt/rocm",
            "HIPCXX": "/opt/rocm/llvm/bin/clang++",
            "HOROVOD_BUILD_ROCM_ARCH_LIST": "gfx90a",
            "HOROVOD_GPU_OPERATIONS": "NCCL",
        },
        "HOROVOD_CUDA_HOME",
    ),
    f"+ddl~nccl {CUDA} target=power9le": (
        {"HOROVOD_GPU_ALLREDUCE": "DDL", "HOROVOD_DDL_HOME": "/ddl"},
        "HOROVOD_GPU_OPERATIONS",
    ),
    # Keras uses the plugin of TensorFlow
    "frameworks:=keras": ({"HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITHOUT_PYTORCH": "1"}, ""),
}


@pytest.mark.parametrize("text", BUILDS)
def test_each_variant_sets_its_variables(text):
    version, _, variants = text.rpartition(" ") if text.startswith("@") else ("", "", text)
    there, absent = BUILDS[text]
    built = environment(variants, version[1:] or "0.28.1")
    assert built.items() >= there.items() and not {*absent.split()} & built.keys()


def test_the_hip_directory_of_a_prefix_is_left_out():
    """Horovod to 0.27 adds it to the directory."""
    assert environment(ROCM, hip="/opt/rocm/hip")["HOROVOD_ROCM_HOME"] == "/opt/rocm"


def test_a_compiler_without_flags_in_archspec():
    """CMake takes an empty value for none, and asks `gcc -march=native`."""
    assert environment(flags="")["HOROVOD_BUILD_ARCH_FLAGS"] == "-fPIC"


@pytest.mark.parametrize(
    ("configuration", "release"),
    [("cpu_icc", "2021.4"), ("cpu", "2021.10"), ("ccl/cpu/lib", "2021.13"), (None, "source")],
)
def test_oneccl_is_the_build_for_cpus(tmp_path, monkeypatch, configuration, release):
    monkeypatch.setitem(PREFIXES, "intel-oneapi-ccl", str(tmp_path))
    for directory in ("", "cpu_gpu_dpcpp", configuration or ""):
        (tmp_path / "lib" / directory).mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / directory / "libccl.so").touch()
    built = environment("+ccl")
    assert built["HOROVOD_CPU_OPERATIONS"] == "CCL"
    assert built["CCL_ROOT"] == str(tmp_path)
    assert built.get("CCL_CONFIGURATION") == configuration


def test_what_a_site_sets_does_not_leak_in(monkeypatch):
    leaks = {"CCL_ROOT", "HOROVOD_GPU_OPERATIONS", "HOROVOD_DEBUG", "MLSL_ROOT"}
    for name in leaks:
        monkeypatch.setenv(name, "of the site")
    taken = set()
    variables = recipe.Variables()
    variables.unset = taken.add
    monkeypatch.setattr(RECIPE.module, "make_jobs", 1, raising=False)
    monkeypatch.setattr(RECIPE.module, "microarchitecture_flags", lambda *_: "", raising=False)
    package_of("").setup_build_environment(variables)
    assert leaks <= taken
    assert "HOROVOD_GPU_OPERATIONS" not in variables


CHECK_BUILD = """Horovod v0.28.1:
Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
Available Controllers:
    [X] MPI
    [X] Gloo
Available Tensor Operations:
    [ ] NCCL
    [X] MPI
    [X] Gloo
"""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", []),
        ("~gloo", ["with gloo"]),
        ("frameworks:=pytorch,keras", ["without tensorflow"]),
        (CUDA, ["without nccl"]),
    ],
)
def test_what_was_built_is_compared_with_what_was_asked_for(text, wrong):
    """By variants; test_smoke_run.py has what else `horovodrun` may print."""
    assert package_of(text)._differences(CHECK_BUILD) == wrong


def test_what_is_built_is_read_from_a_program_that_does_not_flush(tmp_path, monkeypatch):
    program = tmp_path / "horovodrun"
    program.write_text("import os; print('Horovod v0.21.0:'); os._exit(0)")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def python(*words, output, error, extra_env):
        env = {**os.environ, **extra_env}
        return subprocess.run([sys.executable, *words], env=env, stdout=subprocess.PIPE).stdout

    package = package_of("")
    package.spec = {"python": types.SimpleNamespace(command=python)}
    package.prefix = types.SimpleNamespace(bin=types.SimpleNamespace(horovodrun=program))
    for name in ("python_platlib", "python_purelib"):
        monkeypatch.setattr(RECIPE.module, name, "lib", raising=False)
    monkeypatch.setattr(RECIPE.module, "join_path", lambda *parts: "", raising=False)
    assert package._check_build() == b"Horovod v0.21.0:\n"


@pytest.mark.parametrize("program", ["ssh", "rsh", "neither"])
def test_ranks_start_on_a_machine_without_ssh(program, tmp_path, monkeypatch):
    (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    there = RECIPE.module.PyHorovod()._open_mpi_here()
    assert there.get("OMPI_MCA_plm_rsh_agent") == ("/bin/false" if program == "neither" else None)


def test_mxnet_s_headers_are_those_of_its_prefix(tmp_path, monkeypatch):
    """A wheel has them elsewhere, where MXNet itself finds them."""
    monkeypatch.setitem(PREFIXES, "mxnet", str(tmp_path))
    assert "MXNET_INCLUDE_PATH" not in environment("frameworks:=mxnet")
    (tmp_path / "include" / "mxnet").mkdir(parents=True)
    built = environment("frameworks:=mxnet")
    assert built["MXNET_INCLUDE_PATH"] == str(tmp_path / "include")
    assert built["MXNET_LIBRARY_PATH"] == str(tmp_path / "libmxnet.so")
    assert "MXNET_INCLUDE_PATH" not in environment()


ON_NCCL = {
    "0.18.2": {"ALLREDUCE"},
    "0.19.0": {"ALLREDUCE", "BROADCAST"},
    "0.19.5": {"ALLREDUCE", "BROADCAST"},
    "0.20.0": {"OPERATIONS"},
    "0.28.1": {"OPERATIONS"},
}


@pytest.mark.parametrize("library", ["NCCL", "MPI"])
@pytest.mark.parametrize("version", ON_NCCL)
def test_operations_on_gpus_of_each_release(version, library):
    mpi, wanted = library == "MPI", ON_NCCL[version]
    if mpi and "OPERATIONS" not in wanted:
        wanted = {"ALLREDUCE", "ALLGATHER", "BROADCAST"}
    built = environment(f"{CUDA} gpu_ops={'mpi' if mpi else 'none'}", version)
    set_ = {name: value for name, value in built.items() if name.startswith("HOROVOD_GPU_")}
    assert set_ == {f"HOROVOD_GPU_{operation}": library for operation in wanted}
    assert ("HOROVOD_NCCL_HOME" in built) != mpi


@pytest.mark.parametrize(
    ("version", "jobs"), [("0.19.5", 8), ("0.20.0", 1), ("0.23.0", 1), ("0.24.0", 8)]
)
def test_findcuda_builds_one_file_at_a_time(version, jobs):
    assert environment(CUDA, version, jobs=8)["MAKEFLAGS"] == f"-j{jobs}"
    assert environment("", version, jobs=8)["MAKEFLAGS"] == "-j8"


def test_a_jobserver_is_kept_where_it_can_be_reached(monkeypatch):
    """pip closes the pipes that an older make passes on, and a named one is there."""
    monkeypatch.setenv("MAKEFLAGS", " -j --jobserver-auth=fifo:/tmp/1")
    assert "MAKEFLAGS" not in environment()
    assert environment(CUDA, "0.23.0")["MAKEFLAGS"] == "-j1"
    monkeypatch.setenv("MAKEFLAGS", " -j --jobserver-auth=3,4")
    assert environment()["MAKEFLAGS"] == "-j4"


#: make's, CMake's, PyTorch's and MXNet's variables; Horovod does not name them.
TOOLS = {"MAKEFLAGS", "CMAKE_POLICY_VERSION_MINIMUM", "MPI_HOME", "CUDA_HOME"}
TOOLS |= {"MXNET_INCLUDE_PATH", "MXNET_LIBRARY_PATH"}
#: Read by some releases; the others do not mind.
HARMLESS = {
    *("HOROVOD_MPICXX_SHOW", "HOROVOD_WITH_GLOO", "HOROVOD_CMAKE"),
    *("HOROVOD_BUILD_ARCH_FLAGS", "HOROVOD_WITHOUT_NVTX", "CCL_CONFIGURATION", "HOROVOD_GPU"),
    "HOROVOD_BUILD_CUDA_CC_LIST",
}
SPECS = ("", "~gloo", "~mpi", "frameworks:=tensorflow,keras,mxnet")
SPECS += (CUDA, f"{CUDA} gpu_ops=mpi", f"+ddl~nccl {CUDA}")


@pytest.mark.parametrize("text", SPECS)
def test_nothing_is_said_that_a_release_does_not_read(horovod_build_systems, text):
    """A variable that the source does not know would be a silent no-op, or an error."""
    unknown = [
        f"{version}: {name}"
        for version, build_system in horovod_build_systems.items()
        for name in environment(text, version)
        if name not in TOOLS | HARMLESS and not re.search(rf"\b{name}\b", build_system)
    ]
    assert not unknown


def test_every_variable_that_is_set_or_taken_away_is_read_by_some_release(horovod_build_systems):
    read = "\n".join(horovod_build_systems.values())
    said = {name for text in SPECS for name in environment(text)}
    names = (said | HARMLESS | {*RECIPE.module.LEAKS}) - TOOLS
    assert not [name for name in names if not re.search(rf"\b{name}\b", read)]
