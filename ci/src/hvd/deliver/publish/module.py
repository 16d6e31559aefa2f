"""A module, apart from the language that it is written in."""

from __future__ import annotations

import dataclasses
from typing import Tuple

from hvd.model.built import Change


@dataclasses.dataclass(frozen=True)
class Module:
    """What a user loads.

    Args:
        name: such as ``horovod``.
        version: what follows the name and a slash.
        directory: where a hierarchy has it, such as ``MPI/gcc/12.2.0/openmpi/4.1.4``; empty for
            a flat tree.
        whatis: lines for ``whatis`` and ``keyword``.
        help: what ``module help`` says.
        conflicts: modules that it refuses to be loaded beside.
        depends_on: modules that it loads first, in this order.
        changes: of the environment.  Each is taken back when the module is unloaded.
    """

    name: str
    version: str
    directory: str
    whatis: Tuple[str, ...]
    help: str
    conflicts: Tuple[str, ...]
    depends_on: Tuple[str, ...]
    changes: Tuple[Change, ...]

    @property
    def full_name(self) -> str:
        """What users type."""
        return f"{self.name}/{self.version}"

    @property
    def path(self) -> str:
        """Its place below a tool's tree, without the suffix of a language."""
        return "/".join(filter(None, [self.directory, self.full_name]))
