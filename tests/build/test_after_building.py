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

from hvd.smoke.launch import small_machine
from tests.checkout import run, script
from tests.ranks import PROGRAM, said

#: By version alone, as the frameworks beside it are.
IPYKERNEL = "ipykernel==6.31.0"


def test_two_ranks_from_activate_sh(built, tmp_path):
    built.hvd("activate", "--to", tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    lines = [
        "/usr/bin/env -0 > before",
        f". {tmp_path}/activate.sh",
        "mpirun -np 2 python program.py",
        "hvd_deactivate",
        "/usr/bin/env -0 > after",
        ":",
    ]
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    allowed = small_machine(built.target.environment["PATH"])
    command = ["sh", "-euc", "\n".join(lines)]
    output = run(command, env={**bare, **allowed}, cwd=tmp_path, timeout=180)
    assert said(output) == [(0, 2), (1, 2)], output
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def doctor(built, status, **shell):
    """Check to its state and detail."""
    output = built.hvd("doctor", "--json", status=status, **shell)
    report = json.loads(output[output.index("{") :])
    return {each["name"]: each for each in report["checks"]}


def test_doctor_of_a_sound_build(built_horovod):
    found = doctor(built_horovod, 0, LD_LIBRARY_PATH="")
    assert {each["state"] for each in found.values()} == {"ok"}, found
    assert "libmpi" in found["MPI linked"]["detail"]


def test_doctor_finds_what_was_planted(built_horovod, tmp_path):
    """Another MPI first in PATH, a copied library in LD_LIBRARY_PATH, a changed recipe."""
    lines = ("echo 'HYDRA build details:'", "echo '    Version: 4.1.2'")
    mpirun = script(tmp_path / "bin" / "mpirun", *lines)
    shadow = tmp_path / "lib" / "libstdc++.so.6"
    shadow.parent.mkdir()
    shutil.copy(run(["c++", f"-print-file-name={shadow.name}"]).strip(), shadow)
    recipe = built_horovod.checkout.root / "packages" / "py_horovod" / "package.py"
    text = recipe.read_text()
    recipe.write_text(text + "\n")
    shell = {"LD_LIBRARY_PATH": str(shadow.parent), "HVD_ACTIVE": "local-hvd-pip"}
    shell["PATH"] = f"{mpirun.parent}:{os.environ['PATH']}"
    try:
        planted = doctor(built_horovod, 1, **shell)
    finally:
        recipe.write_text(text)
    for check, state, finding in (
        ("MPI in PATH", "fail", f"{mpirun} is mpich 4.1.2"),
        ("LD_LIBRARY_PATH", "fail", f"{shadow} hides"),
        ("build", "warn", "packages/py_horovod/package.py"),
    ):
        assert planted[check]["state"] == state and finding in planted[check]["detail"]


@pytest.fixture(scope="session")
def kernel(built_horovod, tmp_path_factory):
    """The prefix with the installed kernel."""
    target = built_horovod.target
    prefix = tmp_path_factory.mktemp("jupyter")
    if subprocess.run([target.python, "-c", "import ipykernel"], capture_output=True).returncode:
        pip = subprocess.run(
            [target.python, "-m", "pip", "install", "--progress-bar=off", IPYKERNEL],
            env=target.environment,
            capture_output=True,
            text=True,
        )
        if pip.returncode:
            pytest.skip(f"pip has no ipykernel: {pip.stderr[-300:]}")
    built_horovod.hvd("kernel", f"--prefix={prefix}")
    return prefix


def test_a_notebook_runs_in_the_kernel(kernel):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
    kernels = [str(kernel / "share" / "jupyter" / "kernels")]
    manager = AsyncKernelManager(
        kernel_name="hvd-local-hvd-pip", kernel_spec_manager=KernelSpecManager(kernel_dirs=kernels)
    )
    nbclient.NotebookClient(notebook, timeout=120, km=manager).execute()
    output = "".join(each.get("text", "") for each in notebook.cells[0].outputs)
    assert said(output) == [(0, 1)], output
