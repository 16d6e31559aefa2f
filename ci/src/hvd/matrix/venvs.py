"""Virtual environments of the matrix: made once for all cells that ask for the same."""

from __future__ import annotations

import json
import pathlib
from typing import Dict, List, Sequence

from packaging.utils import canonicalize_name

from hvd.core import paths, process, stamp
from hvd.host import framework

DIRECTORY = paths.STATE / "matrix" / "venvs"
#: Seconds for pip; a framework may be gigabytes.
_TIMEOUT = 3600
_LIST = "freeze.json"


def make(
    name: str,
    python: str,
    wanted: Sequence[str],
    pip: str,
    log: pathlib.Path,
    system: bool = False,
) -> pathlib.Path:
    """A virtual environment of ``python`` with ``wanted``, made or found made.

    Args:
        name: what its directory's name begins with.
        python: the interpreter.
        wanted: requirements, PEP 508.
        pip: the requirement of the pip to install with; the newest where empty.
        log: where what is done is written.
        system: it has the interpreter's own packages as well.

    Returns:
        Its directory.

    Raises:
        CommandFailed: pip could not install that.
    """
    options = ["--system-site-packages"] if system else []
    digest = stamp.of(list(wanted), python, framework.version(python), pip, options)
    directory = DIRECTORY / f"{name}-{digest[:8]}"
    if stamp.matches(directory / "stamp", digest):
        return directory
    stamp.clear(directory)
    process.run([python, "-m", "venv", *options, directory], log=log, timeout=_TIMEOUT)
    for requirements in ([pip or "pip"], list(wanted)):
        _pip(directory, ["install", "--upgrade", "--progress-bar=off", *requirements], log)
    listed = _pip(directory, ["list", "--format=json"], log)
    (directory / _LIST).write_text(_json(listed))
    stamp.put(directory / "stamp", digest)
    return directory


def distributions(directory: pathlib.Path) -> Dict[str, str]:
    """What is installed in it, with versions; names as PyPA normalizes them."""
    listed = json.loads((directory / _LIST).read_text())
    return {canonicalize_name(each["name"]): each["version"] for each in listed}


def _pip(directory: pathlib.Path, arguments: List[str], log: pathlib.Path) -> str:
    command = [directory / "bin" / "python", "-m", "pip", *arguments]
    environment = process.clean_environment()
    return process.run(command, log=log, env=environment, timeout=_TIMEOUT).output


def _json(output: str) -> str:
    """The line of pip's output that is its list; warnings may stand around it."""
    return next(line for line in output.splitlines() if line.startswith("["))
