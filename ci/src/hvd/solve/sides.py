"""The sides of a comparison: an environment, a file of a solution, or one of a git revision."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, List, Mapping

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.fetch import clone
from hvd.model import environment, solution
from hvd.solve import kept
from hvd.solve.kept import Package

#: The files of a solution in an environment's directory, the one that says more first.
FILES = ("spack.lock", "dag.json")
_CHOICES = (
    "give an environment that was solved (./hvd list), a spack.lock, a dag.json, "
    "or REVISION:PATH of one"
)


@dataclasses.dataclass(frozen=True)
class Side:
    """A solution to compare."""

    label: str  # what the user called it
    packages: List[Package]
    whole: bool = True  # a lock file; a kept solution says less


def load(text: str) -> Side:
    """The solution that ``text`` names.

    Raises:
        HvdError: it names none, or its file is damaged.
    """
    path = pathlib.Path(text).expanduser()
    if path.exists() and text not in environment.names():
        return _at(text, path)
    if ":" in text:
        return _of_revision(text)
    try:
        directory = environment.load(text).directory
    except HvdError as error:
        raise HvdError(f"'{text}' is not a solution: {error.message}", _CHOICES) from error
    return _at(text, directory)


def parse(label: str, text: str) -> Side:
    """The solution in ``text``, a ``spack.lock`` or a ``dag.json``.

    Raises:
        HvdError: it is neither.
    """
    if '"concrete_specs"' in text:
        return of_specs(label, solution.read(text, label))
    return Side(label, kept.read(text, label).packages, whole=False)


def of_specs(label: str, specs: Mapping[str, Any]) -> Side:
    """The solution of the concrete ``specs``, by hash, called ``label``."""
    return Side(label, kept.packages(specs))


def _at(label: str, path: pathlib.Path) -> Side:
    files = [path / name for name in FILES] if path.is_dir() else [path]
    for file in files:
        if file.is_file():
            return parse(label, file.read_text(errors="replace"))
    raise HvdError(
        f"{paths.shorten(path)} has neither {' nor '.join(FILES)}",
        f"solve it: ./hvd concretize {path.name}",
    )


def _of_revision(label: str) -> Side:
    revision, _, inside = label.partition(":")
    inside = inside.rstrip("/")
    for place in (inside, *(f"{inside}/{name}" for name in FILES)):
        blob = clone.git("cat-file", "blob", f"{revision}:{place}")
        if blob.returncode == 0:
            return parse(label, blob.stdout)
    if clone.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        raise HvdError(f"'{label}': git knows no revision '{revision}'", _CHOICES)
    raise HvdError(
        f"'{label}': {revision} has no {inside} that is a solution, or a directory with one",
        f"see what it has: git ls-tree -r --name-only {revision} environments",
    )
