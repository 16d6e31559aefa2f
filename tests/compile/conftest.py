"""Headers of frameworks, so that Horovod's sources can be compiled against each of them.

Only headers: a wheel of another platform serves as well, and those for macOS are small.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import Callable

import pytest

from hvd.core import paths
from tests.conftest import unmet

#: Platforms to take a project's wheel for, as pip names them, and its directory of headers.
PROJECTS = {
    "torch": (["macosx_14_0_arm64"], "torch/include"),
    "tensorflow-cpu": (
        ["manylinux_2_17_x86_64", "manylinux2010_x86_64", "manylinux_2_27_x86_64"],
        "tensorflow/include",
    ),
}
#: Python versions to ask for: each release has wheels for a few of them.
PYTHONS = ("3.11", "3.10", "3.9", "3.13")


@pytest.fixture(scope="session")
def framework_headers(request) -> Callable[[str, str], pathlib.Path]:
    """A function that gives the directory of headers of a project's release.

    pip puts it into the cache.
    """

    def headers(project: str, version: str) -> pathlib.Path:
        cached = paths.cache() / "headers" / f"{project}-{version}"
        if not cached.is_dir():
            problem = fetch(project, version, cached)
            if problem:
                unmet(request.config, "compile", problem)
        return cached / PROJECTS[project][1]

    return headers


def fetch(project: str, version: str, destination: pathlib.Path) -> str:
    """Unpack the headers of a wheel of ``project`` as ``destination``: whole, or not at all.

    Returns:
        What went wrong; empty if nothing did.
    """
    platforms, include = PROJECTS[project]
    destination.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{project}-", dir=destination.parent))
    try:
        problems = []
        for python in PYTHONS:
            problem = download(f"{project}=={version}", python, platforms, scratch)
            if not problem:
                break
            problems.append(f"Python {python}: {problem}")
        else:
            return f"pip has no wheel of {project} {version}: " + "; ".join(problems)
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(f"{include}/")]
            archive.extractall(scratch / "headers", names)
        if not names:
            return f"{wheel.name} has no {include}"
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(scratch / "headers", destination)
        return "" if destination.is_dir() else f"{destination} cannot be written"
    finally:
        shutil.rmtree(scratch)


def download(requirement: str, python: str, platforms: list, destination: pathlib.Path) -> str:
    """Let pip download one wheel; returns pip's last line if it could not."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [f"--python-version={python}", "--implementation=cp", f"--dest={destination}"]
    command += [f"--platform={platform}" for platform in platforms]
    done = subprocess.run([*command, requirement], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
