"""One run of ``./hvd``: its stages and steps, shown as they go and kept for the report."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import time
from typing import Iterator, List

from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.core.steps import Stage, Step

#: The exit status of ``./hvd`` when a stage fails.
EXIT_STATUS = {
    "setup": 10,
    "concretize": 11,
    "build": 12,
    "smoke": 13,
    "report": 14,
    "cache": 15,
    "bundle": 16,
}


class StageFailed(Exception):
    """A stage ended with an error that was shown already."""

    def __init__(self, stage: str, error: HvdError) -> None:
        super().__init__(stage)
        self.status = EXIT_STATUS[stage]
        self.error = error


@dataclasses.dataclass
class Run:
    """The stages of one ``./hvd`` for one environment and engine.

    Args:
        engine: ``auto``, ``spack`` or ``pip``; not ``auto`` any more when setup is done.
        verbose: show where each log is.
        started: when, ISO 8601 in UTC.
    """

    environment: str
    engine: str
    verbose: bool = False
    started: str = dataclasses.field(
        default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    )
    stages: List[Stage] = dataclasses.field(default_factory=list)

    @property
    def logs(self) -> pathlib.Path:
        """Where the logs of its steps go, beside the report of the same name."""
        return paths.state() / "logs" / paths.key(self.environment, self.engine)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage; an error in it is shown and becomes :class:`StageFailed`."""
        console.heading(name)
        stage = Stage(name)
        self.stages.append(stage)
        begin = time.monotonic()
        try:
            yield stage
        except HvdError as error:
            stage.status = "failed"
            console.error(error)
            raise StageFailed(name, error) from error
        except BaseException:
            stage.status = "failed"
            raise
        finally:
            stage.seconds = time.monotonic() - begin
            if stage.status == "ok" and stage.steps:
                if all(step.status == "cached" for step in stage.steps):
                    stage.status = "cached"

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A step of the stage in progress; it has a log, which is empty at first."""
        stage = self.stages[-1]
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        log = self.logs / stage.name / f"{len(stage.steps) + 1:02d}-{slug}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        step = Step(name, log=log)
        stage.steps.append(step)
        try:
            with console.step(step):
                yield step
        except BaseException as error:
            step.detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise
        finally:
            if not log.stat().st_size:
                # nothing was run
                step.log = None
        if self.verbose and step.log:
            console.note(f"log: {step.log}")
