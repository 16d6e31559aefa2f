"""The shells that people have, of this machine or of Debian's packages."""

from __future__ import annotations

import pathlib
import shutil
from typing import Dict, List

from tests import debian

#: Shell to the file that it sources.
FILES = {
    "dash": "activate.sh",
    "bash": "activate.sh",
    "zsh": "activate.sh",
    "tcsh": "activate.csh",
    "csh": "activate.csh",
    "fish": "activate.fish",
}
#: The options that keep each from reading files of the user's.
_BARE = {
    "dash": ["-eu"],
    "bash": ["--noprofile", "--norc", "-eu"],
    "zsh": ["-f", "-eu"],
    "tcsh": ["-f"],
    "csh": ["-f"],
    "fish": ["--no-config"],
}
_PACKAGES = {"fish": ["fish", "libpcre2-32-0"]}
_PROGRAMS = {"csh": "bsd-csh"}


def command(shell: str) -> List[str]:
    """The words that start ``shell`` without anybody's settings; skips where there is none."""
    program = _PROGRAMS.get(shell, shell)
    found = shutil.which(program)
    if found:
        return [found, *_BARE[shell]]
    root = debian.unpacked(*_PACKAGES.get(shell, [shell]))
    executable = shutil.which(program, path=f"{root}/bin:{root}/usr/bin")
    assert executable, f"{root} has no {program}"
    return [*_loader(root), executable, *_BARE[shell]]


def _loader(root: pathlib.Path) -> List[str]:
    """What lets a program find libraries that were unpacked with it, and leaves no variable."""
    libraries = sorted({str(path.parent) for path in root.rglob("lib*.so.*")})
    loader = next(pathlib.Path("/lib64").glob("ld-linux*"), None)
    return [str(loader), "--library-path", ":".join(libraries)] if libraries and loader else []


def source(shell: str, file: pathlib.Path) -> str:
    """The line that sources ``file``."""
    return f"{'.' if FILES[shell] == 'activate.sh' else 'source'} {file}"


def variables(text: str) -> Dict[str, str]:
    """The environment that ``env -0`` printed."""
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)
