"""``./hvd container``."""

from __future__ import annotations

import enum
import pathlib
import sys
from typing import Optional

import typer

from hvd.cli.common import option
from hvd.core import console
from hvd.core.files import write_atomically
from hvd.core.paths import shorten
from hvd.deliver import container as images
from hvd.model import environment


class Format(str, enum.Enum):
    """The format of a definition."""

    apptainer = "apptainer"
    containerfile = "containerfile"


def container(
    name: str = typer.Argument(..., metavar="ENV", help="Environment; see ./hvd list."),
    format: Format = option(
        "--format", "Apptainer, or Podman, Docker and Shifter.", Format.containerfile
    ),
    output: Optional[pathlib.Path] = option(
        "--output -o FILE", "Output file. \\[default: standard output]", None
    ),
    spec: str = option("--spec SPEC", "Build this py-horovod instead of the environment's."),
    mpi: str = option(
        "--mpi ABI", "ABI of the host's MPI: openmpi or mpich. \\[default: the site's, or openmpi]"
    ),
    target: str = option(
        "--target TARGET", "Oldest processor to support. \\[default: the site's, or x86_64_v3]"
    ),
) -> None:
    """Write a container image definition with an environment's Horovod.

    Build the image in this checkout. The build tests Horovod on two ranks:

    ./hvd container local-hvd -o Containerfile && podman build -f Containerfile -t horovod .
    """
    base = environment.load(name)
    text = images.render(
        environment.derive(base, spec) if spec else base, format.value, mpi, target
    )
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text.encode())
        console.note(shorten(output))
