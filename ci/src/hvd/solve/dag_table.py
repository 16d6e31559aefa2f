"""The solution of a site's environment as a table that is kept with it, and compared."""

from __future__ import annotations

import difflib
import pathlib
import re
from typing import List, Sequence, Tuple

from hvd.core import paths
from hvd.core.files import write_atomically
from hvd.model.dag import DagNode
from hvd.model.environment import Environment
from hvd.model.pins import Pair
from hvd.report.dag import architectures
from hvd.report.text import table

#: The variants that the externals of sites state.
_SAID = ("cuda", "rocm", "cuda_arch", "amdgpu_target", "fabrics", "schedulers", "languages")
#: What Spack adds by itself where a compiler is there, and so on the site alone.
_RUNTIMES = ("compiler-wrapper", "gcc-runtime", "glibc")
_HEADER = ("Package", "Version", "Variants", "From")
#: What is between two cells; one that is escaped is part of a cell.
_CELL = re.compile(r"(?<!\\)\|")


def file(environment: Environment) -> pathlib.Path:
    """Where the table of ``environment`` is kept."""
    return environment.directory / "dag.md"


def render(environment: Environment, nodes: Sequence[DagNode], pair: Pair) -> str:
    """The table: without hashes, which depend on every line of every recipe.

    Args:
        environment: whose solution it is.
        nodes: its concrete specs.
        pair: what solved it.
    """
    nodes = solved(nodes)
    common, *others = architectures(nodes)
    built = [node for node in nodes if not node.external]
    lines = [
        f"# {environment.name}",
        "",
        f"Made by `./hvd lock {environment.name}` with Spack {pair.spack.version} and its packages"
        f" {pair.packages.version}: {len(built)} packages to build, {len(nodes) - len(built)} of"
        f" the site, all for {common}{' but ' if others else ''}{', '.join(others)}."
        " On the site itself, where Spack can ask the compiler, it adds gcc-runtime and the"
        " compiler wrapper, and may take newer build tools.",
        "",
        *(f"    {spec}" for spec in environment.specs),
        "",
    ]
    rows = [
        (node.name, node.version, variants(node), node.prefix if node.external else "built")
        for node in sorted(nodes, key=lambda node: (node.external, node.name, node.version))
    ]
    return "\n".join([*lines, *table(_HEADER, rows)]) + "\n"


def parse(text: str) -> List[Tuple[str, str, str, str]]:
    """The rows of the table in ``text``: package, version, variants, and where it is from.

    Raises:
        ValueError: there is no such table.
    """
    head, *_ = table(_HEADER, [])
    lines = text.splitlines()
    rows = []
    for line in lines[lines.index(head) + 2 :]:
        cells = [_plain(cell.strip()) for cell in _CELL.split(line.strip())[1:-1]]
        if len(cells) != len(_HEADER):
            break
        rows.append(tuple(cells))
    return rows


def _plain(cell: str) -> str:
    """A cell's text without what :func:`hvd.report.text.escape` put into it."""
    return re.sub(r"\\(.)", r"\1", cell)


def solved(nodes: Sequence[DagNode]) -> List[DagNode]:
    """Those of ``nodes`` that a solution on any machine has."""
    return [node for node in nodes if node.name not in _RUNTIMES]


def variants(node: DagNode) -> str:
    """What is on, or has a value; of an external what is not a default that Spack assumes."""
    words = re.findall(r"\w+=\S+|[+][\w-]+", node.variants)
    if node.external:
        words = [word for word in words if re.split("[+=]", word.lstrip("+"))[0] in _SAID]
    return " ".join(word for word in words if not word.endswith("=none"))


def write(environment: Environment, text: str) -> None:
    """Keep ``text`` as the table of ``environment``."""
    write_atomically(file(environment), text.encode())


def difference(environment: Environment, text: str) -> List[str]:
    """The lines in which ``text`` differs from the table that is kept, as ``diff -u`` has them."""
    path = file(environment)
    kept = path.read_text() if path.exists() else ""
    name = paths.shorten(path)
    lines = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), f"{name} as kept", f"{name} as solved", lineterm=""
    )
    return list(lines)
