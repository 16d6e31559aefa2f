"""rocm.patch: Horovod's HIP, and the PyTorch plugin that hipify makes, against HIP's headers.

They come from a root of Debian, with a Python of pyenv, which has headers:

    .venv/bin/python tests/debian_root.py sid-rocm-7 -- \\
        env PATH=~/.pyenv/versions/3.11.7/bin:$PATH ./hvd test tests/compile/test_rocm.py

Nothing is linked: no index has a PyTorch for ROCm.  The TensorFlow plugin is linked and run in
cells of the support matrix.
"""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests import compiling, needs

pytestmark = needs.programs("c++", "hipcc")

#: Headers that PyTorch's CMake makes, and that its wheels for CPUs lack.
MADE = {
    "c10/hip/impl/hip_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS\n",
    "ATen/hip/HIPConfig.h": "#define AT_ROCM_ENABLED() 1\n#define AT_CUDNN_ENABLED() 0\n",
}
#: Sources of the plugin as Horovod's CMakeLists.txt names them for a PyTorch with ROCm.
PLUGIN = ("handle_manager", "ready_event_hip", "hip_util", "mpi_ops_v2_hip", "adapter_v2_hip")
#: As Horovod's own call in horovod/torch/CMakeLists.txt; and as PyTorch's tools/amd_build, for a
#: directory.
HIPIFY = """\
import sys
sys.path.insert(0, {package!r})
from hipify import hipify_python
hipify_python.hipify(
    project_directory={directory!r}, output_directory={directory!r}, extensions={extensions!r},
    includes={includes!r}, is_pytorch_extension={plugin!r}, hip_clang_launch=not {plugin!r},
)
"""


def hipify(package: pathlib.Path, directory: pathlib.Path, plugin: bool) -> None:
    """Let PyTorch's hipify write files for ROCm beside those for CUDA in ``directory``."""
    text = HIPIFY.format(
        package=str(package.parent),
        directory=str(directory),
        extensions=(".cc", ".h") if plugin else (".h", ".cuh"),
        includes="*" if plugin else [f"{directory}/*"],
        plugin=plugin,
    )
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)


@pytest.fixture
def hip_headers() -> pathlib.Path:
    """The directory of HIP's headers."""
    return pathlib.Path(shutil.which("hipcc")).parent.parent / "include"


@pytest.fixture
def options(hip_headers):
    """What rocm.patch has the C++ compiler told."""
    definitions = ("HAVE_ROCM=1", "HAVE_GPU=1", "HAVE_NCCL=1", "HAVE_GLOO=1")
    python = sysconfig.get_path("include")
    if not pathlib.Path(python, "Python.h").is_file():
        pytest.skip(f"{sys.executable} has no headers")
    return [
        *(f"-D{each}" for each in definitions),
        *("-D__HIP_PLATFORM_AMD__=1", f"-isystem{python}"),
        *([] if str(hip_headers) == "/usr/include" else [f"-isystem{hip_headers}"]),
    ]


@pytest.mark.parametrize("version", ["0.28.0", "0.28.1"])
def test_the_operations_compile(horovod_tree, options, version):
    tree = horovod_tree(version, "+rocm frameworks=pytorch")
    compiling.configure_gloo(tree)
    sources = [f"horovod/common/ops/{name}_operations.cc" for name in ("hip", "gpu", "nccl")]
    assert compiling.errors(tree, sources, "-std=c++17", *options) == {}


@pytest.mark.parametrize("pytorch", ["2.10.0", "2.13.0"])
def test_pytorchs_plugin_compiles(horovod_tree, framework_headers, tmp_path, options, pytorch):
    """2.10 is on Frontier."""
    include = framework_headers("torch", pytorch)
    package = framework_headers("torch/hipify", pytorch)
    # where PyTorch's sources have them, and hipify knows them
    for name, place in (("c10", "c10"), ("ATen", "aten/src/ATen")):
        shutil.copytree(include / name / "cuda", tmp_path / "source" / place / "cuda")
        hipify(package, tmp_path / "source", plugin=False)
        made = tmp_path / "include" / name
        made.mkdir(parents=True)
        (tmp_path / "source" / place / "hip").rename(made / "hip")
    for name, text in MADE.items():
        (tmp_path / "include" / name).write_text(f"#pragma once\n{text}")
    tree = horovod_tree("0.28.1", "+rocm frameworks=pytorch")
    compiling.configure_gloo(tree)
    hipify(package, tree / "horovod" / "torch", plugin=True)
    version = "".join(f"{int(part):03}" for part in pytorch.split(".")).lstrip("0")
    options += [f"-I{tmp_path / 'include'}", f"-isystem{include}", "-DUSE_ROCM=1"]
    options += [f"-isystem{include / 'torch' / 'csrc' / 'api' / 'include'}"]
    options += ["-DTORCH_API_INCLUDE_EXTENSION_H=1", f"-DPYTORCH_VERSION={version}000"]
    sources = [f"horovod/torch/{name}.cc" for name in PLUGIN]
    assert compiling.errors(tree, sources, "-std=c++17", *options) == {}
