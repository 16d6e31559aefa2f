"""Throughput of the examples on one rank and on two, with what a cell has built."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
from typing import Container, Dict, Iterator, Mapping

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.model import specs
from hvd.smoke.launch import LAUNCHERS, Target, environment, find_program

#: Example to the framework that it is of, and the distribution's versions that it is for; see
#: examples/README.md.
_EXAMPLES = {
    "pytorch": ("pytorch", "torch", "1.8:"),
    "tensorflow2": ("tensorflow", "tensorflow-cpu", "2.12:"),
    "keras": ("keras", "keras", "2.15:"),
}
_RATE = re.compile(r"epoch \d+: loss [\d.]+, (\d+) samples/s$", re.MULTILINE)
_RANKS = (1, 2)
#: Epochs of a run, each of some tenths of a second.  The fastest counts: in the first the
#: framework warms up, and others may be slowed by what else a machine does.
_EPOCHS = 10
#: Steps that take long beside Horovod's cycle, 1 ms.
SIZES = ("--samples", "16384", "--batch-size", "512", "--hidden", "4096")
#: A thread for each rank, however many there are (OMP_NUM_THREADS is set for any run), and no
#: processes beside them.
_THREADS = {"TF_NUM_INTRAOP_THREADS": "1"}
_OPTIONS = {"pytorch": ("--workers", "0")}
#: Seconds for one run.
_TIMEOUT = 300


def built(state: pathlib.Path, engine: str) -> Target:
    """The Horovod that ``engine`` built in the directory ``state``, and what it runs in."""
    # its bill of materials is beside it
    (file,) = (state / "built").glob(f"*-{engine}.json")
    variables = {**process.clean_environment(), **json.loads(file.read_text())["variables"]}
    python = shutil.which("python", path=variables["PATH"])
    return Target(pathlib.Path(python or "python"), variables)


def chosen(frameworks: Container[str], distributions: Mapping[str, str]) -> Iterator[str]:
    """The examples for what a cell has.

    Args:
        frameworks: the recipe's names of what Horovod was built for.
        distributions: version by name of what pip has installed.
    """
    for name, (of, distribution, versions) in _EXAMPLES.items():
        version = distributions.get(distribution) or distributions.get(of, "")
        if of in frameworks and version and specs.version_in(version, versions):
            yield name


def rates(
    name: str, target: Target, controllers: str, scratch: pathlib.Path, log: pathlib.Path
) -> Dict[str, float]:
    """Samples per second of the fastest epoch, by the number of ranks; a core for each rank.

    Args:
        name: of the example.
        target: the Horovod to run it with.
        controllers: the variants of what was built, such as ``+mpi~gloo``.
        scratch: for checkpoints.
        log: where what is printed is written.

    Raises:
        HvdError: a run failed, or printed no rate.
    """
    wanted = "mpirun" if "+mpi" in controllers else "horovodrun --gloo"
    (launcher,) = [each for each in LAUNCHERS if each.name == wanted]
    script = paths.ROOT / "examples" / name / "train.py"
    found = {}
    for ranks in _RANKS:
        checkpoint = scratch / f"checkpoint-{name}-{ranks}"
        command = launcher.command(find_program(target, launcher.program), ranks)
        command += [str(target.python), str(script), "--checkpoint", str(checkpoint)]
        command += ["--epochs", str(_EPOCHS), *SIZES, *_OPTIONS.get(name, ())]
        with _cores(ranks):
            done = process.run(
                command,
                log=log,
                cwd=scratch,
                env={**environment(launcher, target, _TIMEOUT), **_THREADS},
                timeout=_TIMEOUT,
            )
        epochs = [float(rate) for rate in _RATE.findall(done.output)]
        if len(epochs) != _EPOCHS:
            raise HvdError(
                f"examples/{name}: {len(epochs)} epochs of {_EPOCHS} on {ranks} ranks", log=log
            )
        found[str(ranks)] = max(epochs)
    return found


@contextlib.contextmanager
def _cores(count: int) -> Iterator[None]:
    """Give what is started here ``count`` cores, so that one rank has not those of a second."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
