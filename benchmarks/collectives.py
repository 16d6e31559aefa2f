"""Collectives of Horovod, also as released, of mpi4py and of torch.distributed."""

import json
import os
import pathlib
import shutil
import statistics
import tempfile

from hvd.core import process
from hvd.model import built
from hvd.model.environment import DEFAULT
from hvd.smoke.launch import LAUNCHERS, Target, environment, find_program

#: The parts of ranks.py, for as many ranks as there are cores and for more.
PARTS = ("allreduce", "collectives", "many", "training")
FREE = {"horovod": PARTS, "peer": PARTS, "released": ("allreduce", "training")}
SHARED = {"horovod": ("allreduce",), "peer": ("allreduce",)}
#: How often the methods take turns, as the speed of a machine changes within minutes; and how
#: often in allreduces on free cores, which the goals are about.
ROUNDS, ROUNDS_OF_ALLREDUCE = 3, 9
RANKS = (2, 4, 8)


def launch(launcher, target, method, parts, ranks, log, seconds=0.15, timeout=1200.0):
    """Return what ranks.py times with a launcher of the smoke test.

    Raises:
        CommandFailed: it failed, had a wrong result or timed out.
    """
    peer = "mpi4py" if launcher.controller == "mpi" else "torch"
    variables = environment(launcher, target, timeout)
    if method == "released":
        # the switch of waiting.patch
        variables["HOROVOD_WAKE_ON_WAIT"] = "0"
    with tempfile.TemporaryDirectory() as scratch:
        options = {"library": peer if method == "peer" else "horovod", "device": launcher.device}
        options.update(parts=parts, seconds=seconds, scratch=scratch)
        words = launcher.command(find_program(target, launcher.program), ranks)
        words += [target.python, pathlib.Path(__file__).with_name("ranks.py")]
        words.append(json.dumps(options))
        process.run(words, log=log, env=variables, timeout=timeout)
        return json.loads(pathlib.Path(scratch, "calls.json").read_text())


def rows(what, rounds):
    """Return what all rounds of a method timed, as in results/collectives.json."""
    found, n = [], what["ranks"]
    timed = {}
    for call in (call for calls in rounds for call in calls):
        seconds = call.pop("seconds")
        timed.setdefault(tuple(call.items()), []).extend(seconds)
    # what a rank has to send at least, over the size: as nccl-tests has bus bandwidth
    sent = dict.fromkeys(("allgather", "alltoall", "reducescatter"), (n - 1) / n)
    sent.update(allreduce=2 * (n - 1) / n, broadcast=1)
    for call, seconds in timed.items():
        row = {**what, **dict(call), "calls": len(seconds), "minimum": min(seconds)}
        row["median"] = statistics.median(seconds)
        row["p95"] = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        row["maximum"] = max(seconds)
        if row["operation"] in sent:
            row["bus"] = sent[row["operation"]] * row["bytes"] / row["median"]
        found.append(row)
    return found


def measure(repeat):
    """Return rows and versions of the default environment, which is built."""
    found = built.find(DEFAULT)
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    results = []
    for ranks in RANKS:
        free = ranks <= len(os.sched_getaffinity(0))
        for launcher in LAUNCHERS:
            if launcher.name not in ("mpirun", "horovodrun --gloo"):
                continue
            rounds = {method: [] for method in (FREE if free else SHARED)}
            for number in range(ROUNDS_OF_ALLREDUCE if free else ROUNDS):
                for method, parts in (FREE if free else SHARED).items():
                    print(f"{ranks} ranks, {launcher.name}, {method}, {number + 1}", flush=True)
                    parts = parts if number < ROUNDS else ("allreduce",)
                    log = found.directory / "collectives.log"
                    rounds[method].append(launch(launcher, target, method, parts, ranks, log))
            for method, calls in rounds.items():
                what = {"ranks": ranks, "controller": launcher.controller, "method": method}
                results += rows(what, calls)
    versions = {"Horovod": found.version, **found.frameworks, found.mpi.name: found.mpi.version}
    return results, versions
