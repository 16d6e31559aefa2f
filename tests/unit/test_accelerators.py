"""CUDA, NCCL, ROCm and oneCCL are found."""

import pytest

from hvd.core.errors import HvdError
from hvd.host import accelerators
from tests.checkout import script

HEADER = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in ("CUDA_HOME", "NCCL_HOME", "CCL_ROOT", "HIPCXX"):
        monkeypatch.delenv(name, raising=False)


def touch(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def wheel(directory, library="libnccl.so.2"):
    root = directory / "nvidia" / "nccl"
    touch(root / "lib" / library)
    touch(root / "include" / "nccl.h", HEADER)
    return root


def test_an_nvcc_that_is_a_script_says_where_its_toolkit_is(tmp_path, monkeypatch):
    toolkit = tmp_path / "cuda-13.0"
    (toolkit / "bin").mkdir(parents=True)
    nvcc = script(
        tmp_path / "bin" / "nvcc",
        f"if [ $1 = --dryrun ]; then echo '#$ TOP={toolkit}/bin/..' >&2",
        "else echo 'Cuda compilation tools, release 13.0, V13.0.88'; fi",
    )
    monkeypatch.setenv("PATH", f"{nvcc.parent}:/usr/bin:/bin")
    assert accelerators.cuda() == accelerators.Library(toolkit.resolve(), "13.0")


def test_the_wheels_nccl_gets_the_name_that_a_linker_looks_for(tmp_path):
    root = wheel(tmp_path / "site")
    found = accelerators.nccl(tmp_path / "site", tmp_path / "nccl")
    assert found == accelerators.Library(tmp_path / "nccl", "2.28.9")
    assert (found.prefix / "lib" / "libnccl.so").resolve() == root / "lib" / "libnccl.so.2"
    assert (found.prefix / "include" / "nccl.h").read_text() == HEADER


def test_what_is_installed_is_taken_as_it_is(tmp_path, monkeypatch):
    root = wheel(tmp_path / "opt", "libnccl.so")
    touch(root / "include" / "oneapi" / "ccl.hpp")
    monkeypatch.setenv("NCCL_HOME", str(root))
    monkeypatch.setenv("CCL_ROOT", str(root))
    assert accelerators.nccl(tmp_path / "none", tmp_path / "nccl").prefix == root
    assert accelerators.ccl(tmp_path / "none", tmp_path / "ccl").prefix == root


def hipcc(prefix, version="HIP version: 7.1.52802-0", directory="lib/llvm/bin"):
    """A ROCm that is nothing but what is asked of it."""
    script(
        prefix / "bin" / "hipcc",
        f"echo '{version}'",
        "echo 'AMD clang version 20.0.0git'",
        f"echo 'InstalledDir: {prefix / directory}'",
    )
    for name in ("lib/llvm/bin/clang++", "include/rccl/rccl.h"):
        touch(prefix / name)
    return prefix


def test_rocm_is_that_of_hipcc(tmp_path, monkeypatch):
    prefix = hipcc(tmp_path / "rocm-7.1.1")
    monkeypatch.setenv("PATH", f"{prefix}/bin:/usr/bin:/bin")
    assert accelerators.rocm() == {
        "hip": accelerators.Library(prefix, "7.1"),
        "llvm-amdgpu": accelerators.Library(prefix / "lib" / "llvm"),
        "rccl": accelerators.Library(prefix),
    }


def test_the_compiler_of_rocm_may_be_elsewhere(tmp_path, monkeypatch):
    prefix = hipcc(tmp_path / "usr", directory="bin")
    monkeypatch.setenv("PATH", f"{prefix}/bin:/usr/bin:/bin")
    with pytest.raises(HvdError, match="usr/bin/clang") as error:
        accelerators.rocm()
    assert "HIPCXX" in error.value.remedy
    monkeypatch.setenv("HIPCXX", str(prefix / "lib/llvm/bin/clang++"))
    assert accelerators.rocm()["llvm-amdgpu"].prefix == prefix / "lib" / "llvm"
    # Debian 13's hipcc says /usr/bin, which has clang++-17 and no clang++
    monkeypatch.delenv("HIPCXX")
    for version in ("20", "21"):
        real = touch(prefix / f"lib/llvm-{version}/bin/clang-{version}")
        real.with_name("clang++").symlink_to(real.name)
        (prefix / "bin" / f"clang++-{version}").symlink_to(real.with_name("clang++"))
    assert accelerators.rocm()["llvm-amdgpu"].prefix == prefix / "lib" / "llvm-20"


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    for named, find in (
        ("nvcc", accelerators.cuda),
        ("nccl.h", lambda: accelerators.nccl(tmp_path, scratch)),
        ("libccl.so", lambda: accelerators.ccl(tmp_path, scratch)),
        ("hipcc is not on PATH", accelerators.rocm),
    ):
        with pytest.raises(HvdError, match=named):
            find()
    monkeypatch.setenv("CCL_ROOT", str(tmp_path))
    with pytest.raises(HvdError, match="CCL_ROOT"):
        accelerators.ccl(tmp_path, scratch)


@pytest.mark.parametrize(
    ("version", "lost", "named"),
    [("HIP version: 7.1", "include/rccl/rccl.h", "rccl.h"), ("none", "", "does not name HIP")],
)
def test_a_rocm_that_is_not_whole_is_an_error(tmp_path, monkeypatch, version, lost, named):
    prefix = hipcc(tmp_path / "rocm", version)
    monkeypatch.setenv("PATH", f"{prefix}/bin:/usr/bin:/bin")
    if lost:
        (prefix / lost).unlink()
    with pytest.raises(HvdError, match=named):
        accelerators.rocm()


def test_the_wheels_oneccl_for_cpus_gets_the_usual_layout(tmp_path):
    scratch = tmp_path / "ccl"
    header = touch(tmp_path / "include" / "cpu" / "oneapi" / "ccl.hpp")
    library = touch(tmp_path / "lib" / "cpu" / "libccl.so")
    # twice: what an earlier run left is no obstacle
    for _ in range(2):
        assert accelerators.ccl(tmp_path, scratch) == accelerators.Library(scratch)
    assert (scratch / "include" / "oneapi" / "ccl.hpp").resolve() == header
    assert (scratch / "lib" / "libccl.so").resolve() == library
