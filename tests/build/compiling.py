"""Compile single files of a Horovod tree, as its build would, but to no output."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from typing import Dict, Iterable, Set

#: Below a tree; boost's parts come in addition.
INCLUDES = (
    ".",
    "third_party/eigen",
    "third_party/flatbuffers/include",
    "third_party/gloo",
    "third_party/HTTPRequest/include",
    "third_party/lbfgs/include",
)
#: What a name takes, and the headers that the standard has it in.
NAMES = {
    r"\bstd::(logic|runtime)_error\b|\bstd::invalid_argument\b": {"stdexcept"},
    r"\bstd::string\b": {"string"},
    r"\bu?int(8|16|32|64)_t\b": {"cstdint", "stdint.h"},
}


def compiler() -> str:
    """The machine's C++ compiler; empty if there is none."""
    return shutil.which("c++") or ""


def errors(tree: pathlib.Path, sources: Iterable[str], *options: str) -> Dict[str, str]:
    """What the compiler has against each of ``sources``, the first error alone.

    Args:
        tree: an unpacked Horovod.
        sources: files below ``tree``.
        options: of the compiler: the language standard, definitions, more directories.
    """
    directories = [tree / name for name in INCLUDES] + sorted(
        tree.glob("third_party/boost/*/include")
    )
    command = [compiler(), "-fsyntax-only", "-w", "-pthread", "-DEIGEN_MPL2_ONLY=1", *options]
    command += [f"-I{directory}" for directory in directories]
    found = {}
    for source in sources:
        done = subprocess.run([*command, tree / source], capture_output=True, text=True)
        if done.returncode != 0:
            found[source] = next(line for line in done.stderr.splitlines() if "error" in line)
    return found


def configure_gloo(tree: pathlib.Path) -> None:
    """Write Gloo's config.h as CMake would for its TCP transport and nothing else."""
    template = tree / "third_party/gloo/gloo/config.h.in"
    text = re.sub(r"@\w+@", "0", template.read_text())
    text = re.sub(r"#cmakedefine01 (\w+TRANSPORT_TCP)\b", r"#define \1 1", text)
    text = re.sub(r"#cmakedefine01 (\w+)", r"#define \1 0", text)
    template.with_name("config.h").write_text(text)


def missing_headers(path: pathlib.Path) -> Set[str]:
    """Names that ``path`` uses, where no header of the standard that has them is included.

    Headers count that ``path`` or a header of Horovod's own in it includes, whatever else
    the headers of a compiler's library may include.
    """
    text = path.read_text()
    included = _standard_headers(path, set())
    return {
        found[0]
        for name, headers in NAMES.items()
        for found in [re.search(name, text)]
        if found and not headers & included
    }


def _standard_headers(path: pathlib.Path, seen: Set[pathlib.Path]) -> Set[str]:
    seen.add(path)
    text = path.read_text()
    found = set(re.findall(r"^\s*#\s*include\s+<([^>]+)>", text, re.MULTILINE))
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        other = (path.parent / name).resolve()
        if other.is_file() and other not in seen:
            found |= _standard_headers(other, seen)
    return found
