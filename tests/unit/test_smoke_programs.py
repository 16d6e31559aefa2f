"""The programs that the ranks run, on a Horovod of NumPy whose ranks are threads."""

from __future__ import annotations

import argparse
import ast
import importlib
import pathlib
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hvd.host import interpreter
from hvd.smoke import program_record

DIRECTORY = pathlib.Path(program_record.__file__).parent
PROGRAMS = [*sorted(DIRECTORY.glob("program*.py")), pathlib.Path(interpreter.__file__)]
#: What the standard library of Python 3.6 lacks.
LATER = {"dataclasses", "contextvars", "graphlib", "tomllib", "zoneinfo"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_foreign_interpreters_can_read_it(path: pathlib.Path) -> None:
    """A Horovod of 2020 runs under the Python of its TensorFlow: 3.6 and later."""
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        # generic types of 3.9 are no matter of syntax: they fail at run time
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            assert node.value.id not in ("list", "dict", "tuple", "set"), node.lineno
    assert not imported & LATER
    assert "__future__" not in imported  # annotations are of 3.7


class World:
    """Ranks that exchange values; the calls have to have one name."""

    def __init__(self, size: int) -> None:
        self.size = lambda: size
        self.values: list = [None] * size
        self.barrier = threading.Barrier(size, timeout=20)

    def exchange(self, rank: int, name: str, value: object) -> list:
        """Return the values of all ranks but those that joined; that is a name as well."""
        assert name
        self.values[rank] = name, value
        self.barrier.wait()
        found = [each for each in self.values if each[0] != "joined"]
        self.barrier.wait()
        assert len({name for name, _ in found}) < 2, found
        return [value for _, value in found]


def bfloat16(array):
    """Return the numbers with the bits that bfloat16 has."""
    return (np.asarray(array).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


class Horovod:
    """Horovod's functions as of a version, on one of the ranks of a `World`."""

    __name__ = "horovod.numpy"
    Average, Sum, Min, Max, Product = "average", "sum", "min", "max", "product"
    Compression = types.SimpleNamespace(bf16="bf16")

    def __init__(self, version: str, world: World, rank: int) -> None:
        self.version = tuple(map(int, version.split(".")))
        self.world, self.index = world, rank
        self.size = self.local_size = world.size
        self.rank = self.local_rank = lambda: rank
        self.global_process_set = self.group(world, rank)

    def group(self, world: World, rank: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(size=world.size, rank=lambda: rank, world=world)

    def add_process_set(self, ranks):
        return self.group(World(1), 0)

    def exchange(self, name, value):
        return self.world.exchange(self.index, name, value)

    def allreduce(self, tensor, name=None, op="average", process_set=None, compression=None):
        tensor = bfloat16(tensor) if compression else tensor
        group = process_set or self.global_process_set
        values = group.world.exchange(group.rank(), name, tensor)
        combine = {"min": np.minimum, "max": np.maximum, "product": np.multiply}.get(op, np.add)
        total = combine.reduce(values, dtype=tensor.dtype)
        return (total / len(values)).astype(tensor.dtype) if op == "average" else total

    def allreduce_(self, tensor, name, op=None, average=None):
        tensor[...] = self.allreduce(tensor, name, op or "sum")

    def grouped_allreduce(self, tensors, op):  # horovod.tensorflow takes no name in 0.21
        return [self.allreduce(each, f"group {i}", op) for i, each in enumerate(tensors)]

    def allgather(self, tensor, name):
        return np.concatenate(self.exchange(name, tensor))

    def broadcast(self, tensor, root_rank, name):
        return self.exchange(name, tensor)[root_rank]

    def alltoall(self, tensor, splits=None, name=None):
        if splits is None:
            return np.concatenate(
                [each[self.index : self.index + 1] for each in self.exchange(name, tensor)]
            )
        sent = self.exchange(name, (tensor, splits))
        parts = [np.split(each, np.cumsum(rows)[:-1])[self.index] for each, rows in sent]
        values, rows = np.concatenate(parts), np.array([rows[self.index] for _, rows in sent])
        return (values, rows) if self.version >= (0, 22) else values

    def reducescatter(self, tensor, name, op):
        return np.array_split(self.allreduce(tensor, name, op), self.size())[self.index]

    def broadcast_object(self, each, root_rank, name):
        return self.broadcast(each, root_rank, name)

    def allgather_object(self, each, name):
        return self.exchange(name, each)

    def barrier(self):
        self.exchange("barrier", None)

    def join(self):
        while self.exchange("joined", None):
            pass
        return self.size() - 1 if self.version >= (0, 23) else None


#: The names in `Horovod` that are newer than the oldest one, by version.
SINCE = {
    (0, 19): ["Sum", "Average"],
    (0, 20): ["alltoall", "broadcast_object", "allgather_object", "join"],
    (0, 21): ["grouped_allreduce"],
    (0, 23): ["add_process_set", "global_process_set", "barrier"],
    (0, 28): ["Min", "Max", "Product", "reducescatter", "Compression"],
}


def horovod_of(version: str, world: World, rank: int, without: tuple, spoiled: dict):
    """Return Horovod without some names, and with functions whose results are changed."""
    whole = Horovod(version, world, rank)
    newer = [name for since, names in SINCE.items() if whole.version < since for name in names]
    hvd = types.SimpleNamespace(
        **{name: getattr(whole, name) for name in {*dir(whole)} - {*newer, *without}}
    )
    if whole.version < (0, 20):
        hvd.allreduce = lambda tensor, average=None, op=None: whole.allreduce(tensor, "x", op)
    if whole.version < (0, 19):
        hvd.allreduce = lambda tensor, average=True: whole.allreduce(
            tensor, "x", "average" if average else "sum"
        )
    for name, change in spoiled.items():
        right = getattr(hvd, name)
        wrong = lambda *args, right=right, change=change, **more: change(right(*args, **more))  # noqa: E731
        setattr(hvd, name, wrong)
    return hvd


class Recorder:
    """Keeps what `program_record.Recorder` would write."""

    def __init__(self) -> None:
        self.checked: dict = {}
        self.left_out: dict = {}

    def check(self, operation, call, verify=None, dtype=None, elements=None):
        key = (operation, dtype, elements)
        assert key not in self.checked, f"{key} twice"
        result = call()
        self.checked[key] = verify(result) if verify else ""
        return result

    def emit(self, event, **fields) -> None:
        if event == "left_out":
            self.left_out[fields["operation"]] = fields["reason"]

    @property
    def wrong(self) -> dict:
        return {operation: detail for (operation, *_), detail in self.checked.items() if detail}

    @property
    def operations(self) -> set:
        return {operation for operation, _, _ in self.checked}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch):
    """Make the programs importable, beside a package ``horovod`` that says a version."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DIRECTORY))
    package = types.ModuleType("horovod")
    monkeypatch.setitem(sys.modules, "horovod", package)
    yield package
    for name in set(sys.modules) - before:
        if name.startswith("program"):
            del sys.modules[name]


@pytest.fixture
def checked(programs):
    """A function that runs all checks on a Horovod of a version; it returns rank 0's recorder.

    ``factor`` spoils the gradients; other keywords change the results of Horovod's functions.
    """

    def run(version: str, ranks: int = 2, without=(), factor: float = 1.0, **spoiled) -> Recorder:
        programs.__version__ = version
        checks = importlib.import_module("program_operations")
        world = World(ranks)

        def one(rank: int) -> Recorder:
            hvd = horovod_of(version, world, rank, without, spoiled)
            session = framework(hvd, factor)(Recorder(), argparse.Namespace(**ARGUMENTS))
            checks.run(session)
            session.meet()
            return session.recorder

        with ThreadPoolExecutor(ranks) as pool:
            return next(pool.map(one, range(ranks)))

    return run


ARGUMENTS = {"device": "cpu", "quick": True, "keras": False, "mpi4py": False}


def framework(hvd, factor: float = 1.0) -> type:
    """Return NumPy as a framework, whose distributed gradients are wrong by a factor."""

    def train(network, batches, distributed) -> None:
        for x, _ in batches:
            gradient = np.array([x.mean()])
            if distributed:
                gradient = factor * sum(hvd.allgather(gradient, name="gradient")) / hvd.size()
            network[0] = network[0] + gradient

    class Framework(importlib.import_module("program_session").Session):
        left_out = (("reducescatter", "int8", "no such type"),)
        place = lambda self, device, local_rank: None  # noqa: E731
        tensor = staticmethod(np.copy)
        array = staticmethod(np.asarray)
        narrow = staticmethod(bfloat16)
        wide = staticmethod(np.copy)

        network = weights = staticmethod(lambda arrays: [each.copy() for each in arrays])
        broadcast_by = "broadcast"
        trainers = staticmethod(lambda: {"steps": train})

        def broadcast(self, network) -> None:
            network[:] = [self.hvd.broadcast(each, 0, name="weights") for each in network]

    Framework.hvd = hvd
    return Framework


EVERYTHING = {
    *(f"allreduce {name}" for name in ("sum", "average", "min", "max", "product")),
    *("fused allreduce sum", "grouped allreduce sum", "allgather ragged", "alltoall uneven"),
    *("broadcast from rank 0", "reducescatter sum", "reducescatter average"),
    *("allreduce sum in process set of own rank", "allreduce sum in process set of all ranks"),
    *("broadcast_object", "allgather_object", "barrier", "join after uneven batches"),
    *("broadcast", "steps", "bandwidth of allreduce sum by horovod"),
    *("allgather", "alltoall", "allreduce sum compressed to bfloat16"),
}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_horovod_of_today_is_checked_in_full(checked, ranks: int) -> None:
    recorder = checked("0.28.1", ranks)
    assert recorder.wrong == {}
    assert recorder.left_out == {"reducescatter": "no such type"}
    assert recorder.operations - {"broadcast from rank 1", "broadcast from rank 2"} == EVERYTHING
    averaged = {dtype for name, dtype, _ in recorder.checked if name == "allreduce average"}
    assert averaged == {"bfloat16", "float16", "float32", "float64", "int32", "int64"}


def test_clocks_of_several_hosts_are_not_compared(checked) -> None:
    recorder = checked("0.28.1", local_size=lambda size: 1)
    assert "barrier" in recorder.operations and not recorder.wrong
    assert recorder.left_out["order of a barrier"] == "the ranks are on several hosts"


def test_ranks_have_met_when_their_last_sum_is_there(programs) -> None:
    """MXNet's operations give a tensor at once, and its data later."""
    programs.__version__ = "0.28.1"
    kind = framework(horovod_of("0.28.1", World(1), 0, ("barrier",), {}))
    session = kind(Recorder(), argparse.Namespace(**ARGUMENTS))
    read = []
    session.array = read.append
    session.meet()
    assert len(read) == 1


def test_tensorflow_has_no_barrier(checked) -> None:
    """Ranks meet all the same, and the report says that the barrier was not checked."""
    recorder = checked("0.28.1", without=("barrier",))
    assert recorder.wrong == {}
    assert "barrier" not in recorder.operations
    assert recorder.left_out["barrier"] == "horovod.numpy 0.28.1 has no barrier"


def test_what_oneccl_cannot_do_is_left_out_and_recorded(checked, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "ccl")
    recorder = checked("0.28.1")
    assert recorder.wrong == {}
    assert not [key for key in recorder.checked if key[1] == "float16"]
    assert "not supported in CCL" in recorder.left_out["every operation"]
    for operation in ("process sets", "reducescatter"):
        assert "oneCCL" in recorder.left_out[operation]
        assert not [name for name in recorder.operations if operation.rstrip("s") in name]


@pytest.mark.parametrize(
    ("version", "absent", "averaged"),
    [
        ("0.18.2", {"alltoall", "broadcast_object", "join", "allreduce min"}, 3),
        ("0.19.5", {"alltoall", "broadcast_object", "join", "grouped allreduce", "barrier"}, 3),
        ("0.20.3", {"grouped allreduce", "process sets", "barrier", "reducescatter"}, 5),
        ("0.23.0", {"allreduce product", "reducescatter"}, 5),
    ],
)
def test_what_an_old_horovod_lacks_is_left_out_and_recorded(
    checked, version: str, absent: set, averaged: int
) -> None:
    recorder = checked(version)
    assert recorder.wrong == {}
    assert absent <= set(recorder.left_out)
    reasons = [recorder.left_out[name] for name in absent]
    assert all(f"horovod.numpy {version} has no " in reason for reason in reasons)
    assert not any(name.startswith(tuple(absent)) for name in recorder.operations)
    assert {"allreduce sum", "steps"} <= recorder.operations
    # integers are not averaged where the framework would divide them
    dtypes = {dtype for name, dtype, _ in recorder.checked if name == "allreduce average"}
    assert len(dtypes) == averaged
    assert ("allreduce average" in recorder.left_out) == (averaged == 3)


@pytest.mark.parametrize(
    ("spoiled", "wrong"),
    [
        ({"allreduce": lambda total: total + 1}, {"allreduce sum", "fused allreduce sum"}),
        ({"allgather": lambda rows: rows[::-1]}, {"allgather ragged"}),
        ({"broadcast": lambda tensor: -tensor}, {"broadcast from rank 0", "broadcast"}),
        ({"alltoall": lambda got: (got[0], got[1] + 1)}, {"alltoall uneven"}),
        ({"grouped_allreduce": lambda sums: sums[:-1]}, {"grouped allreduce sum"}),
        ({"reducescatter": lambda rows: rows[:-1]}, {"reducescatter sum"}),
        ({"join": lambda last: 7}, {"join after uneven batches"}),
        ({"broadcast_object": lambda each: None}, {"broadcast_object"}),
        ({"allgather_object": lambda objects: objects[::-1]}, {"allgather_object"}),
        ({"factor": 0.99}, {"steps"}),
    ],
)
def test_a_wrong_result_is_seen(checked, spoiled: dict, wrong: set) -> None:
    assert wrong <= set(checked("0.28.1", **spoiled).wrong)
