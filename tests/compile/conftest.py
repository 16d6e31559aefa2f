"""Headers of frameworks, so that Horovod's sources can be compiled against each of them.

Only headers: a wheel of another platform serves as well, and those for macOS are small.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import zipfile
from typing import Callable

import pytest

from hvd.core import paths
from hvd.core.files import kept

#: Platforms to take a project's wheel for, as pip names them, and its directory of headers.  What
#: is behind a slash sets a second directory of a project apart.
PROJECTS = {
    "torch": (["macosx_14_0_arm64"], "torch/include"),
    # what makes sources for ROCm of those for CUDA
    "torch/hipify": (["macosx_14_0_arm64"], "torch/utils/hipify"),
    "tensorflow-cpu": (
        ["manylinux_2_17_x86_64", "manylinux2010_x86_64", "manylinux_2_27_x86_64"],
        "tensorflow/include",
    ),
}
#: Python versions to ask for: each release has wheels for a few of them.
PYTHONS = ("3.11", "3.10", "3.9", "3.13")


@pytest.fixture(scope="session")
def framework_headers() -> Callable[[str, str], pathlib.Path]:
    """A function that gives the directory of headers of a project's release, from the cache."""

    def headers(project: str, version: str) -> pathlib.Path:
        place = paths.cache() / "headers" / f"{project.replace('/', '-')}-{version}"
        unpacked = kept(place, lambda directory: unpack(project, version, directory))
        return unpacked / PROJECTS[project][1]

    return headers


def unpack(project: str, version: str, directory: pathlib.Path) -> None:
    """Unpack the headers of a wheel of ``project``; skips where pip cannot download one."""
    platforms, include = PROJECTS[project]
    project = project.partition("/")[0]
    command = [sys.executable, "-m", "pip", "download", f"{project}=={version}", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp"]
    command += [f"--platform={platform}" for platform in platforms]
    with tempfile.TemporaryDirectory() as scratch:
        for python in PYTHONS:
            options = [f"--python-version={python}", f"--dest={scratch}"]
            done = subprocess.run([*command, *options], capture_output=True, text=True)
            if done.returncode == 0:
                break
        else:
            problem = done.stderr.strip().splitlines()[-1]
            pytest.skip(f"pip has no wheel of {project} {version}: {problem}")
        (wheel,) = pathlib.Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(f"{include}/")]
            assert names, f"{wheel.name} has no {include}"
            archive.extractall(directory, names)
