"""docs/profilers.md: EZTrace's trace of two ranks of Horovod, as otf2-print prints it."""

import os
import pathlib
import re
import subprocess

import pytest

from hvd.core import paths
from hvd.smoke.launch import environment, find_program
from tests import debian
from tests.ranks import LAUNCHED, PROGRAM, said


@pytest.fixture(scope="module")
def installed() -> pathlib.Path:
    """Where Debian's EZTrace and otf2-print are."""
    return debian.unpacked("eztrace", "libeztrace0", "otf2-tools", dependencies=True)


def commands() -> str:
    """The page's commands, for a shell."""
    page = (paths.ROOT / "docs" / "profilers.md").read_text()
    section = page.partition("\n## EZTrace\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return re.sub(r"^\$ ", "", block, flags=re.MULTILINE)


def traced(target, installed, tmp_path, text: str) -> subprocess.CompletedProcess:
    """Run ``text`` in a shell where EZTrace is installed, with a small program as the example."""
    mpirun = pathlib.Path(find_program(target, "mpirun"))
    if b"Open MPI" not in subprocess.run([mpirun, "--version"], capture_output=True).stdout:
        pytest.skip("the commands are those for Open MPI")
    # without the MPI that the package depends on, and what that one needs
    libraries = tmp_path / "lib"
    libraries.mkdir()
    for pattern in ("libeztrace*", "libopen-trace-format2*"):
        for library in installed.glob(f"usr/lib/*-linux-gnu/{pattern}"):
            (libraries / library.name).symlink_to(library)
    example = "examples/pytorch/pytorch_mnist.py"
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = environment(LAUNCHED["mpirun"], target, 300)
    variables["PATH"] = f"{mpirun.parent}:{installed}/usr/bin:{variables['PATH']}"
    own = [str(mpirun.resolve().parent.parent / "lib"), variables.get("LD_LIBRARY_PATH", "")]
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*own, str(libraries)]))
    (tmp_path / "examples").symlink_to(paths.ROOT / "examples")
    command = ["bash", "-ec", text.replace(f"python {example}", f"{target.python} program.py")]
    options = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, cwd=tmp_path, env=variables, **options)


def test_eztrace_records_the_mpi_calls_of_horovod(built_horovod, installed, tmp_path):
    done = traced(built_horovod.target, installed, tmp_path, commands())
    assert done.returncode == 0 and said(done.stdout) == [(0, 2), (1, 2)], done
    # a float32 sum of 1000 elements, on both ranks
    pattern = r"^MPI_COLLECTIVE_END +(\d+) .*ALLREDUCE.*Sent: 4000, Received: 4000"
    assert len(set(re.findall(pattern, done.stdout, re.MULTILINE))) == 2, done.stdout


def test_eztrace_crashes_without_the_gatherv_of_the_page(built_horovod, installed, tmp_path):
    text = commands().replace("$PWD/gatherv.so:", "")
    done = traced(built_horovod.target, installed, tmp_path, text)
    assert done.returncode != 0 and "MPI_Gatherv" in done.stderr, done
