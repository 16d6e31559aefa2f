"""``./hvd timeline``."""

from __future__ import annotations

import pathlib
from typing import Optional

import typer

from hvd.cli.common import flag, option
from hvd.core import console
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.paths import shorten
from hvd.report.text import duration, plural
from hvd.timeline import archive, picture, tables, trace


def timeline(
    file: pathlib.Path = typer.Argument(
        ..., metavar="FILE", help="File written for HOROVOD_TIMELINE."
    ),
    output: Optional[pathlib.Path] = option(
        "--output -o FILE", "Plot to write, .png or .svg. \\[default: beside FILE, .png]", None
    ),
    top: int = option("--top N", "Tensors to show.", 10, min=1),
    otf2: bool = flag("--otf2", "Write an OTF2 archive too, for Vampir: FILE's name and -otf2."),
) -> None:
    """Show where a job's time goes, from Horovod's timeline.

    For example: HOROVOD_TIMELINE=$PWD/trace.json mpirun -np 2 python train.py, and then
    ./hvd timeline trace.json
    """
    target = output or file.with_suffix(".png")
    if target.suffix not in picture.FORMATS:
        raise HvdError(
            f"--output: {target} ends in none of {', '.join(picture.FORMATS)}",
            "name it trace.png, for example",
        )
    found = trace.read(file)
    if found.truncated:
        console.aside(f"{shorten(file)} is cut off: the job was killed, or runs; read to its end")
    if not found.spans:
        raise HvdError(f"{shorten(file)}: nothing in it took any time", "let the job run longer")
    count = len({span.tensor for span in found.spans})
    console.note(f"{duration(found.seconds)}, {plural(count, 'tensor')}, as rank 0 saw them")
    for table in (tables.phases(found), tables.tensors(found, top), *tables.ranks(found)):
        console.out.print(table)
    for line in tables.unfinished(found):
        console.note(line)
    title = f"Where the time goes, {file.name}"
    write_atomically(target, picture.draw(found, title, target.suffix[1:], top))
    console.note(shorten(target))
    if otf2:
        directory = file.with_name(f"{file.stem}-otf2")
        archive.write(found, directory)
        console.note(shorten(directory / "traces.otf2"))
