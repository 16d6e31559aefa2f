"""JupyterLab as the batch script starts it: reachable with the token alone, by this node alone."""

import contextlib
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import urllib.error
import urllib.request

import psutil
import pytest

from hvd.jupyter import kernel
from tests import builds, kept
from tests.checkout import wait_for

#: Seconds for JupyterLab to start.
PATIENCE = 120
#: JupyterLab and all that it needs.
PINNED = pathlib.Path(__file__).with_name("requirements-jupyterlab.txt")


@pytest.fixture(scope="session")
def jupyter():
    """A JupyterLab."""
    place = kept.environment("jupyterlab", PINNED)
    return kernel.find_jupyter(str(place / "bin" / "jupyter"))


@pytest.fixture
def script(jupyter, tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    subject = builds.record(environment="perlmutter-hvd", engine="spack")
    return kernel.write_lab(subject, jupyter, tmp_path / "share" / "jupyter", "me@login.example")


def test_it_is_for_its_user_alone(script, tmp_path):
    # no user of this machine's settings, and root where tests are root's
    home = tmp_path / "home"
    home.mkdir()
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "SLURM_JOB_ID": "77"}
    output = tmp_path / "output"
    with open(output, "wb") as sink:
        words = [script, "--allow-root"]
        process = subprocess.Popen(words, env=variables, cwd=home, stdout=sink, stderr=sink)
    try:
        printed = awaited(output, r"To see the token.*:\s+cat (\S+)", process)
        file = pathlib.Path(printed[1])
        token = file.read_text()
        assert re.fullmatch("[0-9a-f]{64}", token)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        tunnel = awaited(output, r"ssh -N -L (\d+):127\.0\.0\.1:(\d+) -J (\S+) (\S+)", process)
        assert tunnel[1] == tunnel[2] and tunnel[3] == "me@login.example"
        assert tunnel[4] == os.uname().nodename
        port = int(tunnel[1])
        assert answer(port, "") == 403 and answer(port, "f" * 64) == 403
        assert answer(port, token) == 200
        assert listening(port) == {"127.0.0.1"}
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        for each in family:
            # JupyterLab starts commands that end within milliseconds
            with contextlib.suppress(psutil.NoSuchProcess):
                assert token not in " ".join(each.cmdline())
                assert token not in json.dumps(each.environ())
        assert process.poll() is None
        assert token not in output.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert not file.parent.exists()


def awaited(output, pattern, process):
    """The match of ``pattern`` in the file ``output``, as soon as it is there."""

    def match():
        assert process.poll() is None, output.read_text()
        return re.search(pattern, output.read_text())

    return wait_for(match, PATIENCE, output.read_text)


def answer(port, token):
    """The HTTP status of a request with ``token``."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/kernelspecs")
    request.add_header("Authorization", f"token {token}")
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def listening(port):
    """The addresses of this machine at which ``port`` is listened on."""
    return {
        each.laddr.ip
        for each in psutil.net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
