"""Ranks that stay, and call functions as they are asked to."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import socket
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Sequence

import psutil

from hvd.smoke.launch import environment, find_program
from tests.ranks import LAUNCHED

HERE = pathlib.Path(__file__).parent
#: Seconds in which a call must have answers of all ranks.  Most take less than three; the first
#: waits until all ranks have imported their framework.
LIMIT = 120.0
#: Horovod ends ranks that wait for one of them, soon enough for an answer.
SETTINGS = {
    # milliseconds, in place of 1: ranks that wait for a call leave the cores to others
    "HOROVOD_CYCLE_TIME": "10",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "15",
}


@dataclasses.dataclass
class Job:
    """Running ranks.

    Args:
        processes: what started them.
        directory: where they run, with their output.
        ranks: how many there are.
    """

    processes: List[subprocess.Popen]
    directory: pathlib.Path
    ranks: int

    def __post_init__(self) -> None:
        # for both directions, so that neither side waits for the other to open its pipe
        self._calls = [self._pipe(f"{rank}.calls") for rank in range(self.ranks)]
        self._answers = [self._pipe(f"{rank}.answers") for rank in range(self.ranks)]
        self._read = [b""] * self.ranks

    def _pipe(self, name: str) -> int:
        return os.open(self.directory / name, os.O_RDWR | os.O_NONBLOCK)

    def call(self, function: str, *each: Dict[str, Any], **arguments: Any) -> List[Dict[str, Any]]:
        """Call ``MODULE.FUNCTION`` on each rank; return the answers in the order of the ranks.

        Args:
            each: arguments of one rank each, besides those of all.

        Raises:
            AssertionError: not all ranks answer in time; has their output.
        """
        module, name = function.split(".")
        for rank, pipe in enumerate(self._calls):
            own = each[rank] if each else {}
            os.write(pipe, json.dumps([module, name, {**arguments, **own}]).encode() + b"\n")
        deadline = time.monotonic() + LIMIT
        return [json.loads(self._line(rank, deadline)) for rank in range(self.ranks)]

    def values(self, function: str, *each: Dict[str, Any], **arguments: Any) -> List[Any]:
        """As `call`; return the functions' values.

        Raises:
            AssertionError: a function failed on a rank; has its trace.
        """
        answers = self.call(function, *each, **arguments)
        for rank, answer in enumerate(answers):
            assert "error" not in answer, f"rank {rank}: {answer['trace']}\n{self.output}"
        return [answer["value"] for answer in answers]

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")[-20_000:]

    def _line(self, rank: int, deadline: float) -> bytes:
        pipe = self._answers[rank]
        while b"\n" not in self._read[rank]:
            if select.select([pipe], [], [], 0.2)[0]:
                self._read[rank] += os.read(pipe, 1 << 20)
                continue
            ended = any(each.poll() is not None for each in self.processes)
            assert not ended, f"the ranks ended:\n{self.output}"
            assert time.monotonic() < deadline, f"rank {rank} does not answer:\n{self.output}"
        line, _, self._read[rank] = self._read[rank].partition(b"\n")
        return line

    def close(self) -> None:
        for pipe in (*self._calls, *self._answers):
            os.close(pipe)


@contextlib.contextmanager
def started(
    built,
    launcher: str,
    ranks: int,
    directory: pathlib.Path,
    world: str = "worlds.Horovod",
    **variables,
) -> Iterator[Job]:
    """Start ranks of a build, and end them with the block.

    Args:
        built: the fixture ``built_horovod``.
        launcher: one of `tests.ranks.LAUNCHED`; empty for processes without Horovod.
        world: a class of `worlds` or `worlds_keras`, with its module.
    """
    for rank in range(ranks):
        for name in ("calls", "answers"):
            os.mkfifo(directory / f"{rank}.{name}")
    target = built.target
    common = [target.python, "-u", HERE / "program.py", world, directory]
    if launcher:
        start = LAUNCHED[launcher]
        words = start.command(find_program(target, start.program), ranks)
        commands = [[*words, *common, "", ""]]
        own = environment(start, target, LIMIT)
    else:
        count = variables.pop("size", ranks)
        commands = [[*common, str(rank), str(count)] for rank in range(ranks)]
        own = {**target.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # one thread a rank, as there are more ranks than cores
    own = {**own, "OMP_NUM_THREADS": "1", **SETTINGS, **variables}
    with open(directory / "output", "w") as output:
        processes = _start(commands, directory, own, output)
        job = Job(processes, directory, ranks)
        try:
            yield job
        finally:
            job.close()
            for each in processes:
                end(each)


class Ranks:
    """A job that is started again after a call that it did not survive."""

    def __init__(self, start: Callable[[], contextlib.AbstractContextManager], size: int) -> None:
        self.size = size
        self._start = start
        self._stack = contextlib.ExitStack()
        self._job = None

    def call(self, *words, **arguments):
        """See `Job.call`."""
        return self._of_job("call", *words, **arguments)

    def values(self, *words, **arguments):
        """See `Job.values`."""
        return self._of_job("values", *words, **arguments)

    def _of_job(self, method: str, *words, **arguments):
        if self._job is None:
            self._job = self._stack.enter_context(self._start())
        try:
            return getattr(self._job, method)(*words, **arguments)
        except AssertionError:
            # one of its ranks may wait for another for ever
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()
        self._job = None


@contextlib.contextmanager
def ranks_of(built, tmp_path_factory, launcher, ranks, **options) -> Iterator[Ranks]:
    def start():
        return started(built, launcher, ranks, tmp_path_factory.mktemp("job"), **options)

    found = Ranks(start, options.get("size", ranks))
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def one_processes(
    built, tmp_path_factory, world: str, **settings
) -> Iterator[Callable[[int], Ranks]]:
    """A function that gives one process, to compare with a number of ranks."""
    with contextlib.ExitStack() as stack:
        found = {}

        def of(size: int) -> Ranks:
            if size not in found:
                options = {"world": world, "size": size, **settings}
                one = ranks_of(built, tmp_path_factory, "", 1, **options)
                found[size] = stack.enter_context(one)
            return found[size]

        yield of


def _start(commands: Sequence[list], directory: pathlib.Path, own, output) -> list:
    return [
        subprocess.Popen(
            list(map(str, command)),
            cwd=directory,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        for command in commands
    ]


def end(launcher: subprocess.Popen) -> None:
    """End a launcher and what it started; other jobs go on."""
    family = [psutil.Process(launcher.pid)] if launcher.poll() is None else []
    for each in [*family, *[child for root in family for child in root.children(recursive=True)]]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    launcher.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
