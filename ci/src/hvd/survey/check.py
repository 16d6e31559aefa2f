"""Compare the files of a site with the machine."""

from __future__ import annotations

import os
import pathlib
from typing import Iterator, List, Tuple

from hvd.core.errors import HvdError
from hvd.model.site import Site
from hvd.model.specs import parse
from hvd.solve import site_check
from hvd.solve.spack import Spack
from hvd.survey.machine import Record, detect, scheduler

SAME, MOVED, GONE, UNKNOWN = "as declared", "moved", "gone", "not known"
#: A fact, its state, what is declared, and what is found in its place.
Finding = Tuple[str, str, str, str]


def examine(site: Site, record: Record, spack: Spack, log: pathlib.Path) -> List[Finding]:
    """Return what the machine says of each fact of its files."""
    found = [] if site.scheduler == "none" else list(_scheduler(site, record))
    for load in {load: 0 for use in site.environments.values() for load in (use.build, use.run)}:
        if load:
            state = GONE if record.load(load) is None else SAME
            found.append(("module load", state, "; ".join(" ".join(words) for words in load), ""))
    return found + list(_externals(site, record, spack, log))


def _scheduler(site: Site, record: Record) -> Iterator[Finding]:
    try:
        answer = scheduler(record)
    except HvdError as error:
        yield "scheduler", UNKNOWN, site.scheduler, error.message
        return
    same = answer.scheduler == site.scheduler
    yield "scheduler", SAME if same else MOVED, site.scheduler, answer.scheduler
    if answer.scheduler != "slurm":
        return
    for name, declared in site.partitions.items():
        queue = declared.slurm.partition or answer.default
        found = answer.partitions.get(queue)
        there = ", ".join(answer.partitions)
        yield f"partition {name}", SAME if found else GONE, queue, "" if found else there
        for key in ("gpus", "cores", "memory_gb") if found else ():
            value = getattr(declared, key)
            # the memory of a data sheet, and what the system leaves of it
            close = abs(value - found[key]) <= (0.1 * value if key == "memory_gb" else 0)
            if value or key == "gpus":
                state = SAME if close else MOVED
                yield f"partition {name}: {key}", state, str(value), str(found[key])
    options = [word for each in site.allowed.values() for word in each.options]
    for kind in sorted({word[6:] for word in options if word.startswith("--mpi=")}):
        state = SAME if kind in answer.mpi_types else GONE
        yield "srun --mpi", state, kind, ", ".join(answer.mpi_types)


def _agree(one: str, other: str) -> bool:
    """Return whether two versions agree as far as both go."""
    return all(a == b for a, b in zip(one.split("."), other.split(".")))


def _externals(site: Site, record: Record, spack: Spack, log: pathlib.Path) -> Iterator[Finding]:
    file = site_check.file(site.name)
    declared = site_check.externals(file) if file.exists() else {}
    made = {name for use in site.environments.values() if use.make for name in use.make.packages}
    entries = [(name, *each) for name, all_ in declared.items() for each in all_]
    names = [name for name in declared if name != "python" and not name.startswith("py-")]
    hints = [f"{prefix}/bin" for _, _, prefix, _ in entries if prefix]
    detected = detect(record, spack, hints, names, log) if hints else {}
    for name, version, prefix, modules in entries:
        shown = f"{version} at {prefix}" if prefix else version
        there = [each for each in detected.get(name, []) if each["prefix"] == prefix]
        versions = {parse(each["spec"]).versions for each in there}
        state, found = SAME, ""
        if name in made:
            state, found = UNKNOWN, "users make it"
        elif modules and record.load([[module] for module in modules]) is None:
            state, found = GONE, f"{' '.join(modules)} cannot be loaded"
        elif prefix and not os.path.isdir(prefix):
            state, found = GONE, "no such directory"
        elif versions and not any(_agree(version, each) for each in versions):
            state, found = MOVED, ", ".join(sorted(versions))
        elif not versions and name in names:
            state, found = UNKNOWN, "Spack does not detect it"
        yield f"external {name}", state, shown, found
