"""What can be compared: an environment, a file of a solution, or one of a git revision."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
from typing import Dict, List, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import environment, solution
from hvd.solve import dag_table

#: What holds a solution in an environment's directory, the one that says more first.
FILES = ("spack.lock", "dag.md")
_CHOICES = (
    "give an environment that was solved (./hvd list), a spack.lock, a dag.md, "
    "or REVISION:PATH of one"
)


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of a solution; what the solution does not say is empty.

    Args:
        name: of the package.
        version: its version.
        variants: those that are shown, one string each.
        compiler: what compiles it, such as ``gcc@12.2.0``.
        architecture: ``platform-os-target``.
        origin: ``built``, or where it is on the machine.
        hash: its whole hash.
        recipe: a digest of its recipe.
    """

    name: str
    version: str
    variants: Tuple[str, ...] = ()
    compiler: str = ""
    architecture: str = ""
    origin: str = "built"
    hash: str = ""
    recipe: str = ""


@dataclasses.dataclass(frozen=True)
class Side:
    """A solution to compare.

    Args:
        label: what it was called.
        packages: all that is in it.
        comparable: the same packages as far as a table of a solution shows them.
        table: a table is all that there is of it.
    """

    label: str
    packages: List[Package]
    comparable: List[Package]
    table: bool


def load(text: str) -> Side:
    """The solution that ``text`` means.

    Raises:
        HvdError: it means none, or the file is none.
    """
    if text in environment.names():
        return _in_directory(text, environment.load(text).directory)
    path = pathlib.Path(text).expanduser()
    if path.is_dir():
        return _in_directory(text, path)
    if path.is_file():
        return parse(text, path.read_text(errors="replace"))
    revision, colon, inside = text.partition(":")
    if colon:
        return _of_revision(text, revision, inside.rstrip("/"))
    try:
        derived = environment.load(text).directory
    except HvdError as error:
        raise HvdError(f"'{text}' is no solution", _CHOICES) from error
    return _in_directory(text, derived)


def parse(label: str, text: str) -> Side:
    """The solution in ``text``, a lock file or the table of ``./hvd lock``.

    Raises:
        HvdError: it is neither.
    """
    if text.lstrip().startswith("{"):
        return of_specs(label, solution.read(text, label))
    try:
        rows = dag_table.parse(text)
    except ValueError:
        raise HvdError(f"{label} is neither a spack.lock nor a dag.md", _CHOICES) from None
    packages = [
        Package(name, version, _words(shown), origin=origin)
        for name, version, shown, origin in rows
    ]
    return Side(label, packages, packages, table=True)


def of_specs(label: str, specs: Dict[str, dict]) -> Side:
    """The solution of the concrete ``specs``, by hash, called ``label``."""
    nodes = solution.nodes(specs)
    packages = [
        Package(
            name=node.name,
            version=node.version,
            variants=_words(node.variants),
            compiler=solution.compiler(spec, specs),
            architecture=node.architecture,
            origin=node.prefix if node.external else "built",
            hash=hash_,
            recipe=str(spec.get("package_hash", "")),
        )
        for node, (hash_, spec) in zip(nodes, specs.items())
    ]
    comparable = [
        Package(
            node.name,
            node.version,
            _words(dag_table.variants(node)),
            origin=node.prefix if node.external else "built",
        )
        for node in dag_table.solved(nodes)
    ]
    return Side(label, packages, comparable, table=False)


def _words(text: str) -> Tuple[str, ...]:
    return tuple(solution.WORD.findall(text))


def _in_directory(label: str, directory: pathlib.Path) -> Side:
    for name in FILES:
        if (directory / name).is_file():
            return parse(label, (directory / name).read_text(errors="replace"))
    raise HvdError(
        f"{paths.shorten(directory)} has neither {' nor '.join(FILES)}",
        f"solve it: ./hvd concretize {directory.name}",
    )


def _of_revision(label: str, revision: str, inside: str) -> Side:
    places = [inside, *(f"{inside}/{name}" for name in FILES)]
    for place in places:
        if _git("cat-file", "-t", f"{revision}:{place}").stdout.strip() == "blob":
            return parse(label, _git("show", f"{revision}:{place}").stdout)
    if _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        raise HvdError(f"'{label}': git knows no revision '{revision}'", _CHOICES)
    raise HvdError(
        f"'{label}': {revision} has no {inside} that is a solution, or a directory with one",
        "see what it has: git ls-tree -r --name-only " + f"{revision} environments",
    )


def _git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["git", "-C", str(paths.ROOT), *arguments], capture_output=True, text=True
    )
