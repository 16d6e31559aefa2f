"""The commands of the page on a new site, on a machine with GPUs as far as commands tell."""

import os
import re
import shlex
import sys

from hvd.core import paths
from tests.checkout import script
from tests.spack.conftest import gpu_stand_in
from tests.unit.test_survey import SLURM, machine

PAGE = paths.ROOT / "docs" / "new-site.md"


def commands():
    """The words of each command in the page's first block; modules are for a machine with them."""
    block = re.search(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block
    lines = re.sub(r" --module \S+|\s#.*", "", block[1].replace("\\\n", "")).splitlines()
    return [shlex.split(line.removeprefix("$ ./hvd ")) for line in lines]


def test_the_page_on_a_new_site(located, checkout, tmp_path):
    python = gpu_stand_in(tmp_path / "torch")
    script(tmp_path / "bin" / "nvcc", "echo Cuda compilation tools, release 12.4, V12.4.131")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnccl.so.2.21.5").touch()
    record = machine(tmp_path, SLURM)
    shell = {"PATH": f"{python.parent}:{record.shell['PATH']}", "COLUMNS": "250"}
    shell["LD_LIBRARY_PATH"] = str(tmp_path / "lib")
    make, lock, launch, docs, _ = commands()

    checkout.hvd(*make, "--target", "zen3", **shell)
    checkout.hvd(*lock)
    kept = (checkout.root / "environments" / "moon-hvd" / "dag.txt").read_text()
    assert re.search(r" for linux-\w+[\d.]*-zen3\.", kept)
    for external in ("gcc", "cuda", "openmpi", "nccl", "cmake", "gmake", "python", "py-torch"):
        (line,) = [line for line in kept.splitlines() if line.startswith(f"{external}@")]
        assert line.endswith("]")
    assert "srun --mpi=pmix -N 2 -n 8 python train.py" in checkout.hvd(*launch)

    checkout.hvd(*docs)
    page = (checkout.root / "docs" / "sites" / "moon.md").read_text()
    assert "$ ./hvd build moon-hvd" in page
    assert "| [`moon-hvd`](docs/sites/moon.md) |" in (checkout.root / "README.md").read_text()
    tests = ["test_site.py", "test_site_packages.py", "test_site_page.py"]
    words = ["-k", "moon or layer", *(f"tests/unit/{name}" for name in tests)]
    checkout.run([sys.executable, "-m", "pytest", "-q", *words], PATH=os.environ["PATH"])
