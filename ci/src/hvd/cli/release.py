"""``./hvd release``."""

from __future__ import annotations

import pathlib
from typing import List, Optional

import typer

from hvd.cli.common import option
from hvd.core import console, paths
from hvd.core.run import Run
from hvd.model import environment
from hvd.upkeep import release as upkeep


def release(
    version: str = typer.Argument(..., metavar="VERSION", help="Three numbers, such as 0.2.0."),
    sign: str = option(
        "--sign KEY", "Sign tag and checksums with this key of your own gpg keyring."
    ),
    bundles: Optional[List[str]] = option(
        "--bundle ENV", "Add a bundle of this environment (gigabytes); may be repeated.", None
    ),
    add: Optional[List[pathlib.Path]] = option(
        "--add FILE", "Add this file, such as a wheel of ./hvd wheel; may be repeated.", None
    ),
    to: Optional[pathlib.Path] = option(
        "--to DIR", "Directory for the files. \\[default: .hvd/releases/VERSION]", None
    ),
) -> None:
    """Release this checkout: a commit with the version, a tag, an archive, checksums.

    The section Unreleased of CHANGELOG.md gets the version and the tested pairs of Spack and
    packages, and becomes the text of the tag. If a step fails, nothing is released. Nothing is
    pushed.
    """
    after = upkeep.check(version)
    for name in bundles or []:
        environment.load(name)
    directory = (to or paths.state() / "releases" / version).expanduser().absolute()
    run = Run("release", "git")
    with run.stage("release"), run.step(f"v{version}") as task:
        upkeep.make(version, after, sign, bundles or [], add or [], directory, task)
        task.say(paths.shorten(directory))
    console.note(f"to publish it: git push origin HEAD v{version}, and the files")
