"""Rehearse a site's environment on this machine, with stand-ins for what the site has."""

from __future__ import annotations

import datetime
import json
import pathlib
import subprocess
from typing import Dict, List, Optional

import archspec.cpu

from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.model import environment as environments
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.solve import site_check
from tests import debian_root, declared
from tests.build import module_tools
from tests.declared import Declared
from tests.rehearsal import prepare, result
from tests.rehearsal.result import Result
from tests.rehearsal.stand_ins import Lacking
from tests.rehearsal.steps import FAILED, NOT_SHOWN, StepResult
from tests.services import cluster


def rehearse(name: str) -> Result:
    """Rehearse the environment called ``name``; files go to ``.hvd/rehearsals``.

    Raises:
        HvdError: it was interrupted.
    """
    chosen = environments.load(name)
    scratch = paths.state() / "rehearsals" / name
    (scratch / "made").mkdir(parents=True, exist_ok=True)
    for each in ("tree", "modules", "published", "jupyter", "compilers"):
        stamp.clear(scratch / each)
    log, steps_file = scratch / "log", scratch / "steps.json"
    for each in (log, steps_file):
        each.unlink(missing_ok=True)
    # outside of the namespace, and natively where programs are emulated
    module_tools.install("lmod")
    cluster.unpack()
    shown: Dict[str, str] = {}
    spec, built = chosen.specs[0], []
    try:
        found = declared.read(chosen)
        root = foreign_root(chosen, found)
        if root:
            return in_root(root, name)
        spec, command = prepare.prepare(chosen, found, scratch, shown, log)
    except (HvdError, debian_root.RootError) as error:
        outcome = NOT_SHOWN if isinstance(error, Lacking) else FAILED
        steps = [StepResult("stand-ins", outcome, 0.0, str(error))]
    else:
        subprocess.run(command, check=False)
        if not steps_file.exists():
            raise HvdError("the rehearsal was interrupted", log=log)
        taken = json.loads(steps_file.read_text())
        steps, built = [StepResult(**step) for step in taken["steps"]], taken["built"]
    done = Result(
        environment=name,
        date=datetime.date.today().isoformat(),
        pair=pinned().pairs[0].name,
        files=result.digest(chosen),
        spec=spec,
        stand_ins=shown,
        steps=steps,
        log=stamp.of(log),
        built=built,
    )
    result.save(scratch / "result.json", done)
    if done.passed:
        # gigabytes; where it failed, the next rehearsal goes on from them
        for each in ("made", "stand-ins", "state", "tree"):
            stamp.clear(scratch / each)
    return done


def foreign_root(environment: Environment, found: List[Declared]) -> Optional[str]:
    """Return the name of a root for the environment's processor and Python; None if it is ours.

    Raises:
        Lacking: ``ci/versions.yaml`` has none.
        RootError: it cannot be made.
    """
    wanted = site_check.architecture(environment.specs[0])["target"]
    family = str(archspec.cpu.TARGETS[wanted].family)
    if family == str(archspec.cpu.TARGETS[machine.processor()].family):
        return None
    python = next(each.version for each in found if each.package == "python")
    series = ".".join(python.split(".")[:2])
    for name in debian_root.ROOTS:
        if debian_root.machine(name) == family:
            if (debian_root.make(name) / "usr" / "bin" / f"python{series}").exists():
                return name
    raise Lacking(f"no root for {family} in ci/versions.yaml has Python {series}")


def in_root(root: str, name: str) -> Result:
    """Let the same test rehearse the environment in a root, and return its result.

    Raises:
        HvdError: it was interrupted.
    """
    file = debian_root.state(root) / "rehearsals" / name / "result.json"
    file.unlink(missing_ok=True)
    test = f"{pathlib.Path(__file__).parent}/test_rehearsal.py::test_an_environment[{name}]"
    outside = [str(each) for each in paths.environments() if paths.ROOT not in each.parents]
    hvd = str(paths.ROOT / "hvd")
    debian_root.run(root, [hvd, "test", "-s", "--require=rehearsal", test], outside)
    if not file.exists():
        raise HvdError("the rehearsal was interrupted", log=file.with_name("log"))
    return result.load(file)
