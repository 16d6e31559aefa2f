"""Rehearse one environment: prepare it, take the steps, keep the result."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import subprocess
from typing import Dict, List, Mapping, Sequence

import cattrs

from hvd.core import console, paths, stamp
from hvd.core.errors import HvdError
from hvd.core.steps import Step
from hvd.model import environment as environments
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.rehearse import declared, emulated, prepare, result
from hvd.rehearse.result import Result, StepResult
from hvd.rehearse.stand_ins import Lacking


def directory(name: str) -> pathlib.Path:
    """Return where the rehearsal of an environment keeps its files."""
    return paths.state() / "rehearsals" / name


def run(name: str) -> Result:
    """Rehearse the environment called ``name``.

    Raises:
        HvdError: there is nothing to rehearse it with.
    """
    chosen = environments.load(name)
    if not chosen.site:
        raise HvdError(f"{name} is of this machine", f"./hvd run {name}")
    scratch = directory(name)
    (scratch / "made").mkdir(parents=True, exist_ok=True)
    for kind in ("tree", "modules", "published", "jupyter", "compilers"):
        stamp.clear(scratch / kind)
    log = scratch / "log"
    for old in (log, scratch / "steps.json"):
        old.unlink(missing_ok=True)
    console.heading(name)
    shown: Dict[str, str] = {}
    root = None
    first = Step("stand-ins")
    try:
        with console.step(first):
            try:
                found = declared.read(chosen)
                if emulated.is_needed(chosen):
                    first.name = f"a root for {emulated.family(chosen)}"
                    root = emulated.root(chosen, found, log)
                else:
                    spec, variables, command = prepare.prepare(chosen, found, scratch, shown, log)
            except Lacking as error:
                first.skipped(error.message)
                steps = [StepResult("stand-ins", result.NOT_SHOWN, 0.0, error.message)]
                return _result(chosen, chosen.specs[0], shown, steps, log)
    except HvdError as error:
        console.error(error)
        steps = [StepResult("stand-ins", result.FAILED, 0.0, error.message)]
        return _result(chosen, chosen.specs[0], shown, steps, log)
    if root:
        done = emulated.run(chosen, root)
        result.save(scratch / "result.json", done)
        return done
    subprocess.run(command, env={**os.environ, **variables}, check=False)
    steps_file = scratch / "steps.json"
    if not steps_file.exists():
        raise HvdError("the rehearsal was interrupted", log=log)
    found = json.loads(steps_file.read_text())
    steps = cattrs.structure(found["steps"], List[StepResult])
    done = _result(chosen, spec, shown, steps, log, found["built"])
    if done.passed:
        # gigabytes; where it failed, the next rehearsal goes on from them
        for made in ("made", "stand-ins", "state", "tree"):
            stamp.clear(scratch / made)
    return done


def _result(
    chosen: Environment,
    spec: str,
    shown: Mapping[str, str],
    steps: List[StepResult],
    log: pathlib.Path,
    built: Sequence[str] = (),
) -> Result:
    done = Result(
        environment=chosen.name,
        date=datetime.date.today().isoformat(),
        pair=pinned().pairs[0].name,
        files=result.digest(chosen),
        spec=spec,
        stand_ins=dict(shown),
        steps=steps,
        log=stamp.of(log),
        built=list(built),
    )
    result.save(directory(chosen.name) / "result.json", done)
    return done
