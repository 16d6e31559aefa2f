"""Throughput of the examples on one rank and on two, with what a cell has built."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Container, Dict, Iterator, Mapping

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.matrix.ranks import Ranks
from hvd.model import specs

#: Framework, distribution and its versions by example; see examples/README.md.
_EXAMPLES = {
    "pytorch": ("pytorch", "torch", "1.8:"),
    "tensorflow2": ("tensorflow", "tensorflow-cpu", "2.12:"),
    "keras": ("keras", "keras", "2.15:"),
}
_RATE = re.compile(r"epoch \d+: loss [\d.]+, (\d+) samples/s$", re.MULTILINE)
#: Epochs of a run, each of some tenths of a second.  The fastest counts: in the first the
#: framework warms up, and others may be slowed by what else the machine does.
_EPOCHS = 10
#: Steps that take long compared with Horovod's cycle of 1 ms.
SIZES = ("--samples", "16384", "--batch-size", "512", "--hidden", "4096")
#: One thread per rank (OMP_NUM_THREADS is set for any run), and no processes beside the ranks.
_THREADS = {"TF_NUM_INTRAOP_THREADS": "1"}
_OPTIONS = {"pytorch": ("--workers", "0")}
#: Seconds for one run.
_TIMEOUT = 300


def chosen(frameworks: Container[str], distributions: Mapping[str, str]) -> Iterator[str]:
    """Yield the examples that a cell can run.

    Args:
        frameworks: values of the recipe's variant ``frameworks``.
        distributions: the version of each installed distribution.
    """
    for name, (of, distribution, versions) in _EXAMPLES.items():
        version = distributions.get(distribution) or distributions.get(of, "")
        if of in frameworks and version and specs.version_in(version, versions):
            yield name


def rates(name: str, ranks: Ranks) -> Dict[str, float]:
    """Return the samples per second of the fastest epoch, by the number of ranks.

    Each rank has one core.

    Raises:
        HvdError: a run failed or printed too few rates.
    """
    found = {}
    for count in (1, 2):
        arguments = [paths.ROOT / "examples" / name / "train.py", "--epochs", _EPOCHS, *SIZES]
        arguments += ["--checkpoint", ranks.scratch / f"checkpoint-{name}-{count}"]
        arguments += _OPTIONS.get(name, ())
        with _cores(count):
            launcher = ranks.launchers[0]
            output = ranks.run(launcher, count, arguments, _THREADS, _TIMEOUT, cwd=ranks.scratch)
        epochs = [float(rate) for rate in _RATE.findall(output)]
        if len(epochs) != _EPOCHS:
            raise HvdError(
                f"examples/{name}: {len(epochs)} epochs of {_EPOCHS} on {count} ranks",
                log=ranks.log,
            )
        found[str(count)] = max(epochs)
    return found


@contextlib.contextmanager
def _cores(count: int) -> Iterator[None]:
    """Restrict what is started here to ``count`` cores, so that one rank has no second core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
