"""Jobs whose ranks stay while all tests of a launcher and number of ranks run."""

from __future__ import annotations

from typing import Iterator

import pytest

from tests.training.jobs import Ranks, one_processes, ranks_of

#: Launcher and number of ranks.
WORLDS = [("mpirun", 2), ("mpirun", 3), ("horovodrun --gloo", 2), ("horovodrun --gloo", 3)]
#: For Keras, which makes a graph of each case: each launcher and each number once.
KERAS_WORLDS = [WORLDS[0], WORLDS[3]]


def pytest_runtest_teardown(item, nextitem):
    """End ranks that the next test does not call: their background threads would go on polling.

    A call starts them again.
    """
    following = nextitem.fixturenames if nextitem else ()
    # of a test that was skipped, there are none
    for name in {"ranks", "keras_ranks"} & set(item.funcargs) - set(following):
        item.funcargs[name].close()


def world_name(world) -> str:
    return f"{world[0]}, {world[1]} ranks"


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
