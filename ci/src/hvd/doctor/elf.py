"""The libraries that compiled files need, and where the loader finds them."""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, Iterable, Mapping, Tuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from hvd.core import process

_FOUND = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


def needs(path: str) -> FrozenSet[str]:
    """Return the libraries that the file at ``path`` names, and its undefined symbols.

    Raises:
        ValueError: it is no ELF file.
        OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        try:
            file = ELFFile(stream)
            dynamic = file.get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            table = file.get_section_by_name(".dynsym")
            symbols = table.iter_symbols() if table else ()
            undefined = {each.name for each in symbols if each["st_shndx"] == "SHN_UNDEF"}
            return frozenset(undefined | {tag.needed for tag in tags})
        except ELFError as error:
            raise ValueError(f"{path}: {error}") from error


def resolved(files: Iterable[str], environment: Mapping[str, str]) -> Dict[str, str]:
    """Return each library that one of ``files`` needs, and where the loader finds it.

    This asks the loader itself, by ldd, which is for files that are trusted to run.
    """
    found: Dict[str, str] = {}
    for file in files:
        for name, path in _FOUND.findall(process.output("ldd", file, env=environment)):
            found.setdefault(name, path)
    return found


def moved(
    files: Iterable[str], without: Mapping[str, str], having: Mapping[str, str]
) -> Dict[str, Tuple[str, str]]:
    """Return the libraries that the loader finds elsewhere in a second environment, and where."""
    files = list(files)
    before, after = resolved(files, without), resolved(files, having)
    return {
        name: (before[name], after[name])
        for name in sorted(set(before) & set(after))
        if before[name] != after[name]
    }
