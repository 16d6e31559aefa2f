"""Run a script of examples/ on real ranks, and read what it prints."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import re
from typing import Mapping, Sequence

from hvd.core import paths
from hvd.smoke.launch import LAUNCHERS, Target, environment, find_program
from tests.checkout import run

_EPOCH = re.compile(r"^epoch (\d+): loss ([\d.]+)(?:, \d+ images/s)?$", re.MULTILINE)
#: PyTorch 2.13 does not end the threads of its Gloo with the process group once there was a
#: DistributedDataParallel: about one process in fifty, which has done its work, ends with this.
ABORT = "terminate called without an active exception"
#: Seconds for one run; a run takes ten on two cores that it has to itself.
TIMEOUT = 180


@dataclasses.dataclass(frozen=True)
class Example:
    """A script of examples/ with the Horovod that runs it."""

    script: str  #: its path below examples/
    target: Target
    directory: pathlib.Path
    options: Sequence[object] = ()  #: of each run
    before: Sequence[str] = ()  #: words in front of it
    abort: str = ""  #: what a rank may say that has done its work and aborts at its end

    def run(self, launcher: str, ranks: int, *arguments: object, **variables: str) -> Epochs:
        """Run it on ``ranks`` ranks; launchers by the names of the smoke test."""
        (how,) = [each for each in LAUNCHERS if each.name == launcher]
        script = paths.ROOT / "examples" / self.script
        command = how.command(find_program(self.target, how.program), ranks)
        command += [*self.before, self.target.python, script, *self.options, *arguments]
        surroundings = {**environment(how, self.target, TIMEOUT), **variables}
        try:
            printed = run(command, cwd=self.directory, env=surroundings, timeout=TIMEOUT)
        except AssertionError as failure:
            printed = str(failure)
            if not self.abort or self.abort not in printed:
                raise
        # horovodrun puts the rank before each line
        return epochs(re.sub(r"^\[\d+\]<stdout>:", "", printed, flags=re.MULTILINE), ranks)


@dataclasses.dataclass(frozen=True)
class Epochs:
    """What was printed: the loss by epoch, and how many lines there were."""

    output: str
    losses: Mapping[int, float]
    lines: int


def epochs(output: str, ranks: int) -> Epochs:
    """Read what an example has printed, of which one line says that it has checked all ranks."""
    assert len(re.findall(rf"ranks with the same weights: {ranks}$", output, re.M)) == 1, output
    found = _EPOCH.findall(output)
    return Epochs(output, {int(number): float(loss) for number, loss in found}, len(found))


def check(example: Example, start: str, resume: str, *later: object) -> None:
    """What holds for every example that has a checkpoint.

    Two ranks learn, and leave a trace; killed after the second epoch and resumed, they come to
    what one rank with the batches of both comes to in a single run.

    Args:
        example: to be run.
        start: the launcher of the run from the start.
        resume: that of the run which resumes.
        later: further arguments of the runs but for the first.
    """
    small = ["--samples", 1024, "--seed", 3]
    two = [*small, "--checkpoint", "two"]
    trace = example.directory / "timeline.json"
    begun = example.run(start, 2, *two, "--epochs", 2, HOROVOD_TIMELINE=str(trace))
    assert list(begun.losses) == [1, 2] and begun.lines == 2, begun.output
    resumed = example.run(resume, 2, *two, *later, "--epochs", 3)
    assert list(resumed.losses) == [3] and resumed.lines == 1, resumed.output
    # one rank takes the batches of both; its learning rate is not multiplied by two
    joined = [*small, *later, "--batch-size", 64, "--lr", 0.002]
    one = example.run(start, 1, *joined, "--epochs", 3)
    losses = {**begun.losses, **resumed.losses}
    assert losses[3] < losses[2] < losses[1], losses
    assert losses[3] < losses[1] / 2, losses
    for epoch, loss in one.losses.items():
        # float32, in another order of additions, over some dozens of steps; a lost or unscaled
        # gradient, other weights to begin with, or lost momentum make some hundredths
        assert abs(losses[epoch] - loss) < 1e-4, (losses, one.losses)
    assert accuracy(resumed) == accuracy(one), (resumed.output, one.output)
    # as Perfetto reads it: beginnings of phases by tensor, and the ranks that are ready
    events = [each for each in json.loads(trace.read_text()) if each]
    phases = collections.Counter((e["name"], e["pid"]) for e in events if e["ph"] == "B")
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {name for name, _ in phases}
    assert {each["name"] for each in events if each["ph"] == "X"} >= {"0", "1"}
    # steps of both epochs
    assert max(count for (name, _), count in phases.items() if name == "ALLREDUCE") >= 32


def accuracy(epochs: Epochs) -> str:
    return re.search(r"^accuracy ([\d.]+)%", epochs.output, re.MULTILINE)[1]


def check_accumulation(example: Example) -> None:
    """Two ranks with one backward pass a step train as one rank with two passes.

    With clipping that acts on some steps, and where it does not, so that it hides no factor.
    """
    small = ["--samples", 1024, "--epochs", 3, "--batches-per-allreduce"]
    for clip in ("1", "1e9"):
        two = example.run("mpirun", 2, *small, 1, "--clip", clip)
        one = example.run("mpirun", 1, *small, 2, "--clip", clip)
        # clipping by a norm of scaled gradients would leave next to nothing of them
        assert list(two.losses) == [1, 2, 3] and two.losses[3] < 0.8 * two.losses[1], two.output
        for epoch, loss in one.losses.items():
            # in half precision; a gradient that is lost or twice as large makes tenths
            assert abs(two.losses[epoch] - loss) < 0.01, (clip, two.losses, one.losses)


def check_benchmark(example: Example) -> None:
    """It prints what it has measured, as upstream's; two ranks reduce in half precision."""
    output = example.run(
        *("mpirun", 2, "--batch-size", 1, "--num-warmup-batches", 1, "--num-batches-per-iter", 1),
        *("--num-iters", 2, "--fp16-allreduce", "--no-cuda"),
    ).output
    number = r"([\d.]+)"
    rates = [float(rate) for rate in re.findall(rf"^Iter #\d: {number} img/sec", output, re.M)]
    (mean,) = re.findall(rf"^Img/sec per CPU: {number} \+-[\d.]+$", output, re.M)
    (total,) = re.findall(rf"^Total img/sec on 2 CPU\(s\): {number} \+-[\d.]+$", output, re.M)
    (alone,) = re.findall(rf"^Img/sec of one CPU alone: {number} ", output, re.M)
    (scaling,) = re.findall(rf"^Scaling: {number}% of 2 times one CPU alone$", output, re.M)
    assert len(rates) == 2 and abs(float(mean) - sum(rates) / 2) <= 0.11, output
    assert abs(float(total) - sum(rates)) <= 0.21, output
    # of rounded numbers
    assert abs(float(scaling) / 100 * float(alone) - float(mean)) <= 0.2, output
