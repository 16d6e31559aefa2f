"""What is done with a built environment: ./hvd activate, ./hvd doctor, ./hvd kernel."""

import json
import os
import shutil
import subprocess

import nbclient
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from hvd.smoke.launch import LAUNCHERS, environment
from tests import shells
from tests.conftest import unmet

#: Each rank gives its number; their sum shows that they are of one world.
PROGRAM = """
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
# at once: two ranks share one pipe, and a line in parts may be split
print(f"rank {hvd.rank()} of {hvd.size()} sum {total}\\n", end="", flush=True)
"""
#: By version alone, as the frameworks beside it are.
IPYKERNEL = "ipykernel==6.31.0"
#: What Open MPI needs on a small machine and as root.
ALLOWANCES = ("OMPI_", "PRTE_", "OMP_NUM")


@pytest.mark.parametrize("engine", ["pip", "spack"])
def test_two_ranks_from_activate_sh(request, engine, tmp_path):
    built = request.getfixturevalue(f"built_by_{engine}")
    done = built.checkout.hvd("activate", "local-hvd", f"--engine={engine}", "--to", tmp_path)
    assert done.returncode == 0, done.stdout
    (tmp_path / "program.py").write_text(PROGRAM)
    allowed = environment(LAUNCHERS[0], built.target, 120)
    allowed = {k: v for k, v in allowed.items() if k.startswith(ALLOWANCES)}
    lines = [
        "/usr/bin/env -0 > before",
        shells.source("dash", tmp_path / "activate.sh"),
        "mpirun -np 2 python program.py",
        "hvd_deactivate",
        "/usr/bin/env -0 > after",
        ":",
    ]
    done = subprocess.run(
        [*shells.command(request.config, "dash"), "-c", "\n".join(lines)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **allowed},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in (0, 1):
        assert f"rank {rank} of 2 sum 3.0" in done.stdout
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def doctor(built, **shell):
    """Status, and check to its state and finding."""
    done = built.checkout.hvd("doctor", "local-hvd", "--engine=pip", "--json", **shell)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    return done.returncode, {each["check"]: each for each in report["checks"]}


def test_doctor_of_a_sound_build(built_horovod):
    status, found = doctor(built_horovod, LD_LIBRARY_PATH="")
    assert status == 0, found
    assert {each["state"] for each in found.values()} == {"ok"}, found
    assert "libmpi" in found["MPI linked"]["finding"]


def test_doctor_finds_what_was_planted(built_horovod, tmp_path):
    """Another MPI first in PATH, a copied library in LD_LIBRARY_PATH, a changed recipe."""
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text("#!/bin/sh\necho 'HYDRA build details:'\necho '    Version: 4.1.2'\n")
    mpirun.chmod(0o755)
    ask = ["c++", "-print-file-name=libstdc++.so.6"]
    library = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    shadow = tmp_path / "lib" / "libstdc++.so.6"
    shadow.parent.mkdir()
    shutil.copy(library, shadow)
    recipe = built_horovod.checkout.root / "packages" / "py_horovod" / "package.py"
    text = recipe.read_text()
    recipe.write_text(text + "\n")
    try:
        status, planted = doctor(
            built_horovod,
            PATH=f"{mpirun.parent}:{os.environ['PATH']}",
            LD_LIBRARY_PATH=str(shadow.parent),
            HVD_ACTIVE="local-hvd-pip",
        )
    finally:
        recipe.write_text(text)
    assert status == 1
    assert planted["MPI in PATH"]["state"] == "fail"
    assert f"{mpirun} is mpich 4.1.2" in planted["MPI in PATH"]["finding"]
    assert planted["LD_LIBRARY_PATH"]["state"] == "fail"
    assert f"{shadow} hides" in planted["LD_LIBRARY_PATH"]["finding"]
    assert planted["build"]["state"] == "warn"
    assert "packages/py_horovod/package.py" in planted["build"]["finding"]


@pytest.fixture(scope="session")
def kernel(request, built_horovod, tmp_path_factory):
    """The prefix with the installed kernel; without ipykernel it is refused first."""
    python = built_horovod.target.python
    prefix = tmp_path_factory.mktemp("jupyter")
    arguments = ["kernel", "local-hvd", "--engine=pip", f"--prefix={prefix}"]
    if subprocess.run([python, "-c", "import ipykernel"], capture_output=True).returncode:
        refused = built_horovod.checkout.hvd(*arguments)
        assert refused.returncode == 2
        assert f"{python} -m pip install ipykernel" in refused.stdout.replace("\n", "")
        assert not list(prefix.iterdir())
        pip = subprocess.run(
            [python, "-m", "pip", "install", "--progress-bar=off", IPYKERNEL],
            env=dict(built_horovod.target.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if pip.returncode:
            unmet(request.config, "build", f"pip has no ipykernel: {pip.stdout[-300:]}")
    done = built_horovod.checkout.hvd(*arguments)
    assert done.returncode == 0, done.stdout
    return prefix


def test_a_notebook_runs_in_the_kernel(kernel):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
    kernels = [str(kernel / "share" / "jupyter" / "kernels")]
    manager = AsyncKernelManager(
        kernel_name="hvd-local-hvd-pip", kernel_spec_manager=KernelSpecManager(kernel_dirs=kernels)
    )
    nbclient.NotebookClient(notebook, timeout=120, km=manager).execute()
    text = "".join(each.get("text", "") for each in notebook.cells[0].outputs)
    assert "rank 0 of 1 sum 1.0" in text


def test_a_kernel_of_another_is_kept(built_horovod, kernel):
    directory = kernel / "share" / "jupyter" / "kernels" / "mine"
    directory.mkdir()
    (directory / "kernel.json").write_text('{"argv": [], "display_name": "mine"}')
    arguments = ["kernel", "local-hvd", "--engine=pip", f"--prefix={kernel}", "--name=mine"]
    done = built_horovod.checkout.hvd(*arguments)
    assert done.returncode == 2
    assert "is a kernel that ./hvd has not written" in done.stdout.replace("\n", " ")
    assert json.loads((directory / "kernel.json").read_text())["display_name"] == "mine"
