"""``./hvd externals``: what a Python has, as Spack externals."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Optional

import typer

from hvd.cli.common import option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.doctor import gather
from hvd.host import externals
from hvd.model import environment


def write_externals(
    name: str = typer.Argument(
        "", metavar="ENV", help="Site environment whose Python externals to replace."
    ),
    python: str = option("--python PYTHON", "Python to inspect.", ...),
    scope: Optional[pathlib.Path] = option(
        "--scope FILE", "Output file. \\[default: standard output]", None
    ),
    arch: str = option(
        "--arch 'os=OS target=TARGET'", "Architecture of every external, for a site's environment."
    ),
) -> None:
    """Write a packages.yaml with a Python's frameworks as externals.

    PyTorch, TensorFlow, NumPy, mpi4py and what else Horovod imports, the MPI in PATH or beside
    it, and Python itself, with their variants, GPU architectures and dependencies. NVIDIA GPUs of
    this machine give all packages their architecture.
    """
    if name and (scope or arch):
        raise HvdError("ENV says which file and which architecture", "leave the others out")
    found, values = externals.ask(python), ""
    if name:
        section = externals.for_site(found, environment.load(name))
        scope = environment.load(name).externals
    else:
        section = externals.packages(found, externals.find_mpi(found), arch)
        capabilities = gather.gpus(os.environ).capabilities
        values = ",".join(sorted({each.replace(".", "") for each in capabilities}))
        if values:
            section["all"] = {"variants": [f"cuda_arch={values}"]}
    if scope is None:
        sys.stdout.write(externals.dump(section))
    else:
        externals.write(section, scope, python)
        console.note(f"{paths.shorten(scope)}: {', '.join(key.rstrip(':') for key in section)}")
    if not name:
        _say_stack(externals.stack(found), values)


def _say_stack(stack: str, values: str) -> None:
    """Say what to type where a framework makes Horovod one for GPUs."""
    if stack == "cuda":
        console.aside(
            "its frameworks are built for CUDA, and so must Horovod be: spack install "
            + ("py-horovod+cuda" if values else "py-horovod+cuda cuda_arch=80 for an A100")
        )
    elif stack:
        console.aside(
            "its frameworks are built for ROCm, and so must Horovod be: spack install "
            "py-horovod+rocm amdgpu_target=gfx90a for an MI250X"
        )
    if values:
        console.aside(f"this machine's GPUs make cuda_arch={values} the default of all packages")
