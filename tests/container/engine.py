"""Carry out a Containerfile without a container engine: in roots made by debootstrap, as root.

Each stage is a directory; RUN is `chroot` in mount and process namespaces of its own, so that
nothing is left mounted.  Base images of Debian are taken for what debootstrap makes of the same
release.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from typing import Dict

import pytest
from dockerfile_parse import DockerfileParser

from hvd.core import paths
from hvd.core.files import kept
from tests import debian
from tests.checkout import run

RELEASE = "bookworm"
#: Where the host's certificates are in a root, besides its own.
_CERTIFICATES = "/etc/certificates-of-the-host.pem"
_CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
#: How packages are reached from here: an engine would hand on proxies and mount pip.conf.
_HOST = re.compile(r"PIP_\w+|\w+_proxy|(REQUESTS_CA|CURL_CA)_BUNDLE|SSL_CERT_FILE", re.I)
#: What a step does in its namespaces before it is handed over to; $1 is the root.
_ENTER = """
set -e
mount --make-rprivate /
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
shift
exec "$@"
"""


@dataclasses.dataclass
class Stage:
    """A stage: its root directory, its variables and its user."""

    root: pathlib.Path
    variables: Dict[str, str]
    user: str = "0"

    def inside(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")

    def run(self, command: str, **more: str) -> str:
        """A RUN: the output of ``command`` for a shell in the root."""
        host = {name: value for name, value in os.environ.items() if _HOST.fullmatch(name)}
        for name, value in host.items():
            if os.path.isfile(value) and value.endswith((".crt", ".pem")):
                host[name] = _CERTIFICATES
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"]
        words += [str(self.root), "chroot", f"--userspec={self.user}:{self.user}", str(self.root)]
        return run([*words, "/bin/sh", "-c", command], env={**self.variables, **host, **more})


def carry_out(containerfile: str, context: pathlib.Path, scratch: pathlib.Path) -> Stage:
    """Carry out every instruction, and return the last stage."""
    base = base_root(scratch)
    text = io.BytesIO(containerfile.encode())
    stages: Dict[str, Stage] = {}
    for step in DockerfileParser(fileobj=text, env_replace=False).structure:
        kind, value = step["instruction"], step["value"]
        if kind == "FROM":
            image, _, name = value.partition(" AS ")
            assert image.startswith("docker.io/library/debian:12"), image
            stage = stages[name] = Stage(scratch / name, dict(_CLEAN))
            run(["cp", "-a", base, stage.root])
        elif kind == "RUN":
            stage.run(value)
        elif kind == "ENV":
            for word in shlex.split(value):
                key, _, text = word.partition("=")
                stage.variables[key] = text.replace("$PATH", stage.variables["PATH"])
        elif kind == "COPY":
            *options, origin, target = value.split()
            sources = [stages[option.split("=", 1)[1]].root for option in options] or [context]
            goal = stage.inside(target)
            goal.parent.mkdir(parents=True, exist_ok=True)
            run(["cp", "-a", sources[-1] / origin.lstrip("/"), goal])
        elif kind == "USER":
            stage.user = value
        else:
            assert kind in ("COMMENT", "LABEL", "CMD"), kind
    return stage


def base_root(scratch: pathlib.Path) -> pathlib.Path:
    """A minimal Debian, from the cache or by debootstrap; skips where no mirror is reached."""
    cached = kept(paths.cache() / "container" / RELEASE, _bootstrap)
    root = scratch / "base"
    root.mkdir()
    run(["tar", "-C", root, "-xf", cached / "root.tar"])
    for name in ("resolv.conf", "hosts"):  # what engines provide; no root has it of itself
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    if os.path.isfile(certificates):
        shutil.copy(certificates, root / _CERTIFICATES.lstrip("/"))
    for directory in filter(os.path.isdir, os.environ.get("PIP_FIND_LINKS", "").split()):
        shutil.copytree(directory, root / directory.lstrip("/"), dirs_exist_ok=True)
    return root


def _bootstrap(place: pathlib.Path) -> None:
    tools = debian.unpacked("debootstrap")
    program = tools / "usr" / "sbin" / "debootstrap"
    variables = {**os.environ, "DEBOOTSTRAP_DIR": str(tools / "usr" / "share" / "debootstrap")}
    command = [program, "--variant=minbase", RELEASE, place / "root"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"debootstrap: {done.stdout[-300:]}{done.stderr[-300:]}")
    run(["tar", "-C", place / "root", "-cf", place / "root.tar", "."])
    shutil.rmtree(place / "root")
