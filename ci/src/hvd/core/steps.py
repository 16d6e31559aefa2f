"""A step and a stage of a run, as the console shows them and the report keeps them."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import List, Literal, Optional

from hvd.core.errors import redacted

#: The result of a step or a stage; "cached" means done by an earlier run and still valid.
Status = Literal["ok", "failed", "cached", "skipped"]


@dataclasses.dataclass
class Step:
    """One thing that a stage did, such as ``py-horovod``.

    Args:
        seconds: wall time in seconds.
        log: its log, absolute or relative to the report's directory; None where nothing was run.
        detail: one line for the reader; where it failed, why.
    """

    name: str
    status: Status = "ok"
    seconds: float = 0.0
    log: Optional[pathlib.Path] = None
    detail: str = ""

    def cached(self, detail: str = "already there") -> None:
        """Say that an earlier run did this step, and that it still holds."""
        self.status, self.detail = "cached", detail

    def skipped(self, reason: str) -> None:
        """Say that this step was not done, and why."""
        self.status, self.detail = "skipped", reason

    def failed(self, reason: str) -> None:
        """Say that this step failed, and why; the stage goes on."""
        self.status, self.detail = "failed", reason

    def say(self, detail: str) -> None:
        """Put ``detail`` on the step's line."""
        self.detail = redacted(detail)


@dataclasses.dataclass
class Stage:
    """A stage of a run, such as ``setup``: its wall time in seconds, and its steps in order."""

    name: str
    status: Status = "ok"
    seconds: float = 0.0
    steps: List[Step] = dataclasses.field(default_factory=list)
