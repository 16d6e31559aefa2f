"""./hvd kernel: what is installed, and the job around JupyterLab."""

import json
import os
import stat

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.jupyter import kernel
from tests import builds


def made(name):
    return builds.record(environment=name, engine="spack")


@pytest.fixture
def prefix(tmp_path):
    return tmp_path / "prefix"


def install(prefix, name="hvd-local"):
    subject = made("local-hvd")
    return kernel.install(subject, activation.plan(subject), name, str(prefix))


def test_the_kernel_stands_alone_and_is_replaced(prefix):
    for _ in range(2):
        directory = install(prefix)
    assert directory == prefix / "share" / "jupyter" / "kernels" / "hvd-local"
    content = json.loads((directory / "kernel.json").read_text())
    assert content["metadata"]["hvd"] == "local-hvd-spack"
    assert content["display_name"] == "Horovod (local-hvd, spack)"
    assert "{resource_dir}/activate.sh" in content["argv"]
    assert "_hvd_prepend PATH /view/bin" in (directory / "activate.sh").read_text()


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"metadata": {}}'])
def test_another_s_kernel_is_kept(prefix, content):
    directory = prefix / "share" / "jupyter" / "kernels" / "hvd-local"
    directory.mkdir(parents=True)
    (directory / "kernel.json").write_text(content)
    with pytest.raises(HvdError, match=str(directory)):
        install(prefix)
    assert (directory / "kernel.json").read_text() == content


def test_what_cannot_be_installed(prefix):
    with pytest.raises(HvdError, match="--name: 'a b'"):
        install(prefix, "a b")
    assert not prefix.exists()
    prefix.write_text("a file")
    with pytest.raises(HvdError, match=str(prefix)) as raised:
        install(prefix)
    assert "--prefix DIR" in raised.value.remedy


def test_a_python_without_ipykernel(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ipykernel'\" >&2\nexit 1\n"
    )
    python.chmod(0o755)
    with pytest.raises(HvdError, match="No module named 'ipykernel'") as raised:
        kernel.require_ipykernel(str(python), {"PATH": "/usr/bin:/bin"})
    assert raised.value.remedy == f"{python} -m pip install ipykernel"


def job(name, **options):
    subject = made(name)
    script = kernel.write_lab(
        subject, "/opt/my lab/bin/jupyter", paths.state() / "data", "me@login"
    )
    asked = {"account": "", "time": "", "queue": "", **options}
    return script, kernel.job(subject, script, **asked)


@pytest.mark.parametrize(
    ("name", "lines", "starts"),
    [
        ("perlmutter-hvd", ["#SBATCH -A m1_g", "#SBATCH -N 1", "#SBATCH -J jupyterlab"], "srun"),
        ("summit-hvd", ["#BSUB -P m1_g", "#BSUB -nnodes 1", "#BSUB -J jupyterlab"], "jsrun"),
    ],
)
def test_the_job(name, lines, starts):
    script, text = job(name, account="m1_g", time="1:00:00")
    for line in lines:
        assert line in text.splitlines()
    assert "umask 077" in text.splitlines() and "spack" not in text.replace(str(script), "")
    last = text.splitlines()[-1]
    assert last.split()[0] == starts and last.endswith(str(script))
    content = script.read_text()
    assert "jupyter='/opt/my lab/bin/jupyter'" in content
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


def test_without_a_scheduler_there_is_no_job():
    with pytest.raises(HvdError, match="without a scheduler") as raised:
        job("local-hvd")
    assert raised.value.remedy.endswith("jupyterlab.sh")


def test_which_jupyter(tmp_path):
    for program in ("jupyter", "jupyter-lab"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        os.chmod(tmp_path / program, 0o755)
    own = str(tmp_path / "jupyter")
    assert kernel.find_jupyter("", {"PATH": "/nowhere"}, {"PATH": str(tmp_path)}) == own
    assert kernel.find_jupyter(own, {}) == own
    with pytest.raises(HvdError, match="PATH"):
        kernel.find_jupyter("", {"PATH": "/nowhere"})
    (tmp_path / "jupyter-lab").unlink()
    with pytest.raises(HvdError, match=own):
        kernel.find_jupyter(own, {"PATH": str(tmp_path)})
