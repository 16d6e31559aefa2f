"""What the user asks of all stages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from hvd.deliver.cache import Cache


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where the user wants Spack, its packages and its compiler wrapper from.

    Each is a path or a git address; empty for the pinned commit at its official address.
    """

    spack: str = ""
    packages: str = ""
    compiler_wrapper: str = ""
    pair: str = ""  # name of a pair of Spack and packages; empty for the first that fits


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command line, the same for every stage."""

    engine: str = "auto"
    sources: Sources = Sources()
    python: str = ""
    jobs: int = 1
    fresh: bool = False
    verbose: bool = False
    ranks: int = 2
    cache: Optional[Cache] = None
    json: bool = False  # print the report on standard output
