"""JupyterLab as the example starts it: reachable with the token alone, by this node alone."""

import os
import pathlib
import re
import signal
import stat
import subprocess
import urllib.error
import urllib.request

import psutil

from hvd.core import paths
from tests import kept
from tests.checkout import wait_for


def test_it_is_for_its_user_alone(tmp_path):
    jupyter = kept.environment(
        "jupyterlab", pathlib.Path(__file__).with_name("requirements-jupyterlab.txt")
    )
    variables = {"PATH": f"{jupyter}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    output = tmp_path / "output"
    # root where tests are root's
    words = [paths.ROOT / "examples" / "jupyterlab.sh", "--allow-root"]
    with open(output, "wb") as sink:
        process = subprocess.Popen(words, env=variables, cwd=tmp_path, stdout=sink, stderr=sink)

    def printed():
        assert process.poll() is None, output.read_text()
        return re.search(r"cat (\S+)$", output.read_text(), re.MULTILINE)

    try:
        file = pathlib.Path(wait_for(printed, 120, output.read_text)[1])
        token = file.read_text()
        assert re.fullmatch("[0-9a-f]{64}", token)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        tunnel = r"ssh -N -L (\d+):127\.0\.0\.1:\1 -J LOGIN " + os.uname().nodename
        port = int(re.search(tunnel, output.read_text())[1])
        assert [answer(port, each) for each in ("", "f" * 64, token)] == [403, 403, 200]
        connections = psutil.net_connections(kind="inet")
        listening = [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
        assert [each.ip for each in listening if each.port == port] == ["127.0.0.1"]
        for each in (
            process.pid,
            *(child.pid for child in psutil.Process(process.pid).children()),
        ):
            for name in ("cmdline", "environ"):
                assert token.encode() not in pathlib.Path(f"/proc/{each}/{name}").read_bytes()
        assert token not in output.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert not file.parent.exists()


def answer(port, token):
    """The HTTP status of a request with ``token``."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/kernelspecs")
    request.add_header("Authorization", f"token {token}")
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
