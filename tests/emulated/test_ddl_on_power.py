"""+ddl for Power, as far as stubs of IBM DDL and of CUDA can tell: linked, and reported as built.

The functions are asked that `horovodrun --check-build` asks.  That cannot be run: the plugin of
a PyTorch for CPUs cannot be imported with the rest compiled for GPUs.
"""

from __future__ import annotations

import re
import shutil

import pytest
from elftools.elf.elffile import ELFFile

from tests.build.test_ddl import STUBS, VARIANTS
from tests.emulated import roots

#: CUDA has no compiler for Power here, and Debian's PyTorch is for CPUs: files of Horovod to what
#: is replaced in them, and by what.
CHANGES = {
    "CMakeLists.txt": {
        "enable_language(CUDA)": "",
        "add_subdirectory(horovod/common/ops/cuda)": "",
    },
    "horovod/torch/CMakeLists.txt": {
        "if (HAVE_CUDA AND NOT Pytorch_CUDA)": "if (FALSE)",
        "if(HAVE_CUDA)": "if(FALSE)",
        "# Create library": "set_source_files_properties(${PYTORCH_SOURCES} PROPERTIES "
        'COMPILE_OPTIONS "-UHAVE_CUDA;-UHAVE_GPU")',
    },
}
#: Makes the stubs' libraries, and installs Horovod with them.
BUILD = """
set -e
cd "$0"
mkdir -p ddl/lib cuda/bin cuda/lib64
cp -r stubs/cuda cuda/include
cp -r stubs/ddl/include ddl
printf '#!/bin/sh\n[ "$1" = --version ] && echo release 10.1, V10.1.243\n' >cuda/bin/nvcc
chmod +x cuda/bin/nvcc
c++ -shared -fPIC -Iddl/include -o ddl/lib/libddl.so stubs/ddl/ddl.cc
c++ -shared -fPIC -xc++ -o ddl/lib/libddl_pack.so /dev/null
includes=$(echo tree/third_party/boost/*/include | sed 's/^/-I/; s/ / -I/g')
c++ -shared -fPIC -Icuda/include -Itree $includes -Itree/third_party/flatbuffers/include \\
    -o cuda/lib64/libcudart.so stubs/cuda/cudart.cc
c++ -shared -fPIC -xc++ -o cuda/lib64/libcuda.so /dev/null

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_GPU_ALLREDUCE=DDL
export HOROVOD_DDL_HOME=$PWD/ddl CUDAToolkit_ROOT=$PWD/cuda CPATH=$PWD/cuda/include
export LDFLAGS="-L$PWD/cuda/lib64 -Wl,--no-as-needed -lcudart"
/usr/bin/python3 -m pip install --no-build-isolation --no-deps --target installed -v ./tree
"""
CHECK = """
cd "$0"
export LD_LIBRARY_PATH=$PWD/ddl/lib:$PWD/cuda/lib64
/usr/bin/python3 -c '
import ctypes, sys, torch
library = ctypes.CDLL(sys.argv[1])
for name in "ddl", "mpi", "nccl", "gloo":
    print(name, getattr(library, "horovod_" + name + "_built")())
' "$1"
"""


@pytest.fixture(scope="module")
def installed(horovod_tree, tmp_path_factory):
    """The root, a directory in its checkout with Horovod, and PyTorch's plugin of that."""
    root = roots.make("bookworm-ppc64el", tmp_path_factory.mktemp("ddl"))
    work = root.checkout.root / "ddl"
    shutil.copytree(horovod_tree("0.28.1", VARIANTS), work / "tree")
    shutil.copytree(STUBS, work / "stubs")
    for name, changes in CHANGES.items():
        text = (work / "tree" / name).read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (work / "tree" / name).write_text(text)
    root.run("bash", "-c", BUILD, work)
    (plugin,) = (work / "installed" / "horovod" / "torch").glob("mpi_lib_v2*.so")
    return root, work, plugin


def test_it_is_linked(installed):
    _, _, plugin = installed
    with open(plugin, "rb") as stream:
        elf = ELFFile(stream)
        needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    assert elf["e_machine"] == "EM_PPC64"
    assert {"libddl.so", "libddl_pack.so"} <= needed


def test_it_is_reported(installed):
    root, work, plugin = installed
    output = root.run("bash", "-c", CHECK, work, plugin)
    built = dict(re.findall(r"^(\w+) (\d)$", output, re.MULTILINE))
    assert built == {"ddl": "1", "mpi": "1", "nccl": "0", "gloo": "0"}, output
