"""Jobs whose ranks stay while all tests of a launcher and number of ranks run."""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator

import pytest

from tests.training import jobs

#: Launcher and number of ranks.
WORLDS = [("mpirun", 2), ("mpirun", 3), ("horovodrun --gloo", 2), ("horovodrun --gloo", 3)]
#: For Keras, which makes a graph of each case: each launcher and each number once.
KERAS_WORLDS = [WORLDS[0], WORLDS[3]]


class Ranks:
    """A job that is started again after a call that it did not survive."""

    def __init__(self, start: Callable[[], contextlib.AbstractContextManager], size: int) -> None:
        self.size = size
        self._start = start
        self._stack = contextlib.ExitStack()
        self._job = None

    def call(self, *words, **arguments):
        """See `jobs.Job.call`."""
        return self._of_job("call", *words, **arguments)

    def values(self, *words, **arguments):
        """See `jobs.Job.values`."""
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
        return jobs.started(built, launcher, ranks, tmp_path_factory.mktemp("job"), **options)

    found = Ranks(start, options.get("size", ranks))
    try:
        yield found
    finally:
        found.close()


def world_name(world) -> str:
    return f"{world[0]}, {world[1]} ranks"


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


@pytest.fixture(scope="session", params=WORLDS, ids=world_name)
def ranks(request, built_horovod, tmp_path_factory) -> Iterator[Ranks]:
    """Ranks of Horovod with PyTorch, by each launcher."""
    with ranks_of(built_horovod, tmp_path_factory, *request.param) as found:
        yield found


@pytest.fixture(scope="session")
def one_process(built_horovod, tmp_path_factory):
    with one_processes(built_horovod, tmp_path_factory, "worlds.OneProcess") as of:
        yield of


@pytest.fixture(scope="session", params=KERAS_WORLDS, ids=world_name)
def keras_ranks(request, built_tensorflow, tmp_path_factory) -> Iterator[Ranks]:
    """Ranks of Horovod with TensorFlow and Keras, by each launcher."""
    world = {"world": "worlds_keras.Horovod"}
    with ranks_of(built_tensorflow, tmp_path_factory, *request.param, **world) as found:
        yield found


@pytest.fixture(scope="session")
def one_keras_process(built_tensorflow, tmp_path_factory):
    with one_processes(built_tensorflow, tmp_path_factory, "worlds_keras.OneProcess") as of:
        yield of
