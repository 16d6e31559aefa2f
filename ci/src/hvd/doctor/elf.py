"""What compiled libraries need, and where the loader finds it."""

from __future__ import annotations

import re
import subprocess
from typing import Dict, Iterable, Mapping, Tuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from hvd.doctor.model import Extension

_FOUND = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_TIMEOUT = 60


def read(path: str) -> Extension:
    """The dynamic section and symbols of the library at ``path``.

    Raises:
        ValueError: it is none.
        OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        try:
            file = ELFFile(stream)
            dynamic = file.get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            needed = tuple(tag.needed for tag in tags)
            table = file.get_section_by_name(".dynsym")
            symbols = table.iter_symbols() if table else ()
            undefined = frozenset(s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF")
        except ELFError as error:
            raise ValueError(f"{path}: {error}") from error
    return Extension(path, needed, undefined)


def resolved(files: Iterable[str], environment: Mapping[str, str]) -> Dict[str, str]:
    """Library to the path at which the loader finds it for one of ``files``.

    The loader itself is asked, by ldd: for files of the environment, which is trusted to run.
    """
    found: Dict[str, str] = {}
    for file in files:
        try:
            done = subprocess.run(
                ["ldd", file], env=dict(environment), capture_output=True, text=True,
                timeout=_TIMEOUT,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        for name, path in _FOUND.findall(done.stdout):
            found.setdefault(name, path)
    return found


def moved(
    files: Iterable[str], without: Mapping[str, str], having: Mapping[str, str]
) -> Dict[str, Tuple[str, str]]:
    """Library to where the loader finds it in two environments, where that differs."""
    files = list(files)
    before, after = resolved(files, without), resolved(files, having)
    return {
        name: (before[name], after[name])
        for name in sorted(set(before) & set(after))
        if before[name] != after[name]
    }
