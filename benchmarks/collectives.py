"""Collectives of Horovod, also as released, of mpi4py and of torch.distributed."""

import itertools
import json
import os
import pathlib
import shutil
import statistics
import tempfile

from benchmarks.page import HERE, spread
from hvd.core import process
from hvd.model import built
from hvd.model.environment import DEFAULT
from hvd.smoke.launch import LAUNCHERS, Target, environment, find_program

#: The parts of ranks.py that each method runs; "released" waits as Horovod was released.
PARTS = ("allreduce", "collectives", "lists", "training")
METHODS = {"horovod": PARTS, "peer": PARTS, "released": ("allreduce", "lists", "training")}
#: How often the methods take turns; and in allreduces on free cores, which the goals are about.
ROUNDS, ROUNDS_OF_ALLREDUCE = 3, 9
#: What a rank has to send at least, by nccl-tests: how often its size, on very many ranks.
SENT = {"allreduce": 2, "broadcast": 1, "allgather": 1, "alltoall": 1, "reducescatter": 1}


def launch(launcher, target, method, parts, ranks, log, seconds=0.15, timeout=1200.0):
    """Return what ranks.py times with a launcher of the smoke test; a wrong result is an error."""
    peer = "mpi4py" if launcher.controller == "mpi" else "torch"
    variables = environment(launcher, target, timeout)
    # the switch of waiting.patch
    variables["HOROVOD_WAKE_ON_WAIT"] = "0" if method == "released" else "1"
    with tempfile.TemporaryDirectory() as scratch:
        options = {"library": peer if method == "peer" else "horovod", "device": launcher.device}
        options.update(parts=parts, seconds=seconds, scratch=scratch)
        words = launcher.command(find_program(target, launcher.program), ranks)
        words += [target.python, HERE / "ranks.py", json.dumps(options)]
        process.run(words, log=log, env=variables, timeout=timeout)
        return json.loads(pathlib.Path(scratch, "calls.json").read_text())


def rows(what, rounds):
    """Return what all rounds of a method timed, as in results/collectives.json."""
    found = {}
    for call in itertools.chain(*rounds):
        seconds = call.pop("seconds")
        row = found.setdefault(tuple(call.items()), {**what, **call, "seconds": []})
        row["seconds"] += seconds
    for row in found.values():
        seconds, n = row.pop("seconds"), what["ranks"]
        row.update(calls=len(seconds), **spread(seconds))
        row["p95"] = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        if row["operation"] in SENT:
            part = 1 if row["operation"] == "broadcast" else (n - 1) / n
            row["bus"] = SENT[row["operation"]] * part * row["bytes"] / row["median"]
    return list(found.values())


def collectives(repeat):
    """Return the rows and the versions of the default environment, which is built."""
    found = built.find(DEFAULT)
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    launchers = [each for each in LAUNCHERS if each.name in ("mpirun", "horovodrun --gloo")]
    results, cores, log = [], len(os.sched_getaffinity(0)), found.directory / "collectives.log"
    for ranks, launcher in itertools.product((2, 4, 8), launchers):
        rounds = {method: [] for method in METHODS}
        for number in range(ROUNDS if ranks > cores else ROUNDS_OF_ALLREDUCE):
            for method, parts in METHODS.items():
                print(f"{ranks} ranks, {launcher.name}, {method}, {number + 1}", flush=True)
                parts = parts[:1] if ranks > cores or number >= ROUNDS else parts
                rounds[method].append(launch(launcher, target, method, parts, ranks, log))
        for method, calls in rounds.items():
            what = {"ranks": ranks, "controller": launcher.controller, "method": method}
            results += rows(what, calls)
    versions = {"Horovod": found.version, **found.frameworks, found.mpi.name: found.mpi.version}
    return results, versions
