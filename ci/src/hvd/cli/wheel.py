"""``./hvd wheel``."""

from __future__ import annotations

import pathlib
from typing import Optional

import rich.table

from hvd.build import components
from hvd.cli.common import BuiltArgument, BuiltByOption, EngineName, option
from hvd.core import console, paths
from hvd.deliver import wheel as wheels
from hvd.fetch import python_index
from hvd.model import built


def wheel(
    name: str = BuiltArgument,
    engine: EngineName = BuiltByOption,
    to: Optional[pathlib.Path] = option(
        "--to DIR", "Output directory. \\[default: .hvd/wheels]", None
    ),
) -> None:
    """Pack the Horovod of a built environment as a wheel, for pip on other machines.

    They need the same frameworks, MPI and Python. The wheel's version names them, and the wheel
    has the bill of materials.
    """
    found = built.find(name, engine.value)
    directory = (to or paths.state() / "wheels").expanduser().absolute()
    log = paths.state() / "logs" / f"{found.name}-wheel.log"
    bom = components.file(found.environment, found.engine)
    made = wheels.make(found, bom, directory, log)
    table = rich.table.Table(box=None, pad_edge=False, show_header=False)
    for title, text in wheels.needs(found).items():
        table.add_row(title, text)
    console.note("it needs")
    console.out.print(table)
    console.note(f"{paths.shorten(made)}: sha256 {python_index.digest(made)}")
    version = made.name.split("-")[1]
    console.note(
        f"to install it: pip install --find-links {paths.shorten(directory)} horovod=={version}"
    )
