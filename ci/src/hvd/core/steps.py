"""A step and a stage of a run, as the console shows them and the report keeps them."""

from __future__ import annotations

import dataclasses
from typing import List, Optional

#: What a step or a stage can come to; "cached" means done by an earlier run and still valid.
STATUSES = ("ok", "failed", "cached", "skipped")


@dataclasses.dataclass
class Step:
    """One thing that a stage did.

    Args:
        name: what it is called on the console, such as ``py-horovod``.
        status: one of `STATUSES`.
        seconds: wall time in seconds.
        log: its log, absolute or relative to the report's directory.
        detail: one line for the reader; where it failed, why.
    """

    name: str
    status: str = "ok"
    seconds: float = 0.0
    log: Optional[str] = None
    detail: str = ""

    def __post_init__(self) -> None:
        _require_status(self.status)


@dataclasses.dataclass
class Stage:
    """A stage of the run: ``setup``, ``concretize``, ``build`` or ``smoke``.

    Args:
        name: one of the above.
        status: one of `STATUSES`.
        seconds: wall time in seconds; at least the sum of its steps'.
        steps: what it did, in order.
    """

    name: str
    status: str = "ok"
    seconds: float = 0.0
    steps: List[Step] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        _require_status(self.status)


def _require_status(status: str) -> None:
    if status not in STATUSES:
        raise ValueError(f"status {status!r} is none of {', '.join(STATUSES)}")
