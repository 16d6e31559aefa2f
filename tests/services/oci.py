"""A container registry on this machine, from Debian's package."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import urllib.request
from typing import Iterator

from tests import debian
from tests.checkout import wait_for

_CONFIGURATION = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
#: Seconds until it answers.
_PATIENCE = 30.0


@contextlib.contextmanager
def registry(directory: pathlib.Path) -> Iterator[str]:
    """Serve an empty registry below ``directory``, and yield the address of a cache in it."""
    program = debian.unpacked("docker-registry") / "usr" / "bin" / "docker-registry"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = directory / "registry.yml"
    file.write_text(_CONFIGURATION.format(directory=directory / "registry", port=port))
    log = directory / "registry.log"
    with open(log, "wb") as sink:
        process = subprocess.Popen([program, "serve", file], stdout=sink, stderr=sink)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).close()
            return True
        return False

    try:
        wait_for(answers, _PATIENCE, log.read_text)
        yield f"oci+http://127.0.0.1:{port}/hvd"
    finally:
        process.terminate()
        process.wait(10)
