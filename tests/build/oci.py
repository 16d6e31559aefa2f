"""A container registry on this machine, from Debian's package."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Iterator

from tests import debian
from tests.conftest import unmet

_CONFIGURATION = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
#: Seconds until it answers.
_PATIENCE = 30.0


@contextlib.contextmanager
def registry(config, directory: pathlib.Path) -> Iterator[str]:
    """Serve an empty registry below ``directory``, and yield the address of a cache in it."""
    try:
        program = debian.unpacked("docker-registry") / "usr" / "bin" / "docker-registry"
    except OSError as error:
        unmet(config, "services", f"a container registry: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = directory / "registry.yml"
    file.write_text(_CONFIGURATION.format(directory=directory / "registry", port=port))
    with open(directory / "registry.log", "wb") as log:
        process = subprocess.Popen([program, "serve", file], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, (directory / "registry.log").read_text()
                assert time.monotonic() < deadline, "the registry does not answer"
                time.sleep(0.1)
        yield f"oci+http://127.0.0.1:{port}/hvd"
    finally:
        process.terminate()
        process.wait(10)
