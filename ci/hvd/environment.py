"""The named environments below ``environments/``."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List

import yaml

from hvd import paths
from hvd.errors import HvdError

#: The generated file with this machine's externals, where an environment includes it.
EXTERNALS = "externals.yaml"


@dataclasses.dataclass(frozen=True)
class Environment:
    """An environment: its name, its directory and what its ``spack.yaml`` asks for."""

    name: str
    directory: pathlib.Path
    specs: List[str]
    includes: List[str]

    @property
    def takes_externals(self) -> bool:
        """Whether it takes frameworks and MPI from this machine, as ``./hvd`` finds them."""
        return EXTERNALS in self.includes

    @property
    def externals(self) -> pathlib.Path:
        return self.directory / EXTERNALS

    @property
    def lock(self) -> pathlib.Path:
        return self.directory / "spack.lock"

    def inputs(self) -> List[pathlib.Path]:
        """Every file of ours that decides how this environment concretizes."""
        files = [self.directory / "spack.yaml"]
        for entry in self.includes:
            target = (self.directory / entry).resolve()
            if target.exists():
                files.append(target)
        return [*files, paths.PACKAGES, paths.ROOT / "repo.yaml"]


def names() -> List[str]:
    """All environments, in alphabetical order."""
    return sorted(path.parent.name for path in paths.ENVIRONMENTS.glob("*/spack.yaml"))


def load(name: str) -> Environment:
    """The environment called ``name``.

    Raises:
        HvdError: there is none, or its ``spack.yaml`` is not as it should be.
    """
    file = paths.ENVIRONMENTS / name / "spack.yaml"
    shown = paths.shorten(file)
    if not file.is_file():
        raise HvdError(f"no environment is called '{name}'", f"use one of {', '.join(names())}")
    try:
        data = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise HvdError(f"{shown}: {error}", "mend the YAML") from error
    content: Dict[str, Any] = (data or {}).get("spack") if isinstance(data, dict) else None
    if not isinstance(content, dict):
        raise HvdError(f"{shown}: key 'spack' is missing", "begin the file with 'spack:'")
    specs = content.get("specs")
    if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
        raise HvdError(
            f"{shown}: key 'spack:specs' must be a list of specs", "add a root spec to it"
        )
    includes = [
        entry if isinstance(entry, str) else entry.get("path", "")
        for entry in content.get("include", [])
    ]
    return Environment(name, file.parent, list(specs), includes)
