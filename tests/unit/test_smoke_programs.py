"""The programs that the ranks run, on a Horovod of NumPy whose ranks are threads."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import pathlib
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hvd.doctor import imports
from hvd.host import interpreter
from hvd.smoke import program
from hvd.smoke import program_reference as reference
from hvd.smoke.program_reference import Expected, mismatch

DIRECTORY = pathlib.Path(program.__file__).parent
PROGRAMS = [*sorted(DIRECTORY.glob("program*.py"))]
PROGRAMS += [pathlib.Path(each.__file__) for each in (imports, interpreter)]
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
    """Keeps what `program.Recorder` would write."""

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
        place = lambda self, device, local_rank: None  # noqa: E731
        tensor = staticmethod(lambda array, dtype="": np.copy(array))
        array = staticmethod(np.asarray)
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
    "allreduce sum compressed to bfloat16",
}
DTYPES = {"bfloat16", "float16", "float32", "float64", "int32", "int64"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_horovod_of_today_is_checked_in_full(checked, ranks: int) -> None:
    recorder = checked("0.28.1", ranks)
    assert (recorder.wrong, recorder.left_out) == ({}, {})
    assert recorder.operations - {"broadcast from rank 1", "broadcast from rank 2"} == EVERYTHING
    for operation in ("allreduce average", "allgather ragged", "reducescatter sum"):
        assert {dtype for name, dtype, _ in recorder.checked if name == operation} == DTYPES


def test_what_oneccl_cannot_do_is_left_out_and_recorded(checked, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "ccl")
    recorder = checked("0.28.1")
    assert recorder.wrong == {}
    assert set(recorder.left_out) == {"float16", "process sets", "reducescatter"}
    assert not [key for key in recorder.checked if key[1] == "float16" or "reducesc" in key[0]]


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
    assert all(version in recorder.left_out[name] for name in absent)
    assert not any(name.startswith(tuple(absent)) for name in recorder.operations)
    assert {"allreduce sum", "steps"} <= recorder.operations
    # integers are not averaged where the framework would divide them
    dtypes = {dtype for name, dtype, _ in recorder.checked if name == "allreduce average"}
    assert len(dtypes) == averaged


def one_ulp(result):
    """Return an array with one element off by one ULP, or an integer by one."""
    wrong = np.copy(result)
    first = wrong.reshape(-1)[:1]
    first[...] = np.nextafter(first, np.inf) if wrong.dtype.kind == "f" else first + 1
    return wrong


@pytest.mark.parametrize(
    ("spoiled", "wrong"),
    [
        ({"allreduce": lambda total: total + 1}, {"allreduce sum", "fused allreduce sum"}),
        ({"allreduce": one_ulp}, {"allreduce min", "allreduce max"}),
        ({"allgather": one_ulp}, {"allgather ragged"}),
        ({"allgather": lambda rows: rows[::-1]}, {"allgather ragged"}),
        ({"broadcast": one_ulp}, {"broadcast from rank 0", "broadcast"}),
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


FLOATS, INTEGERS = ("float16", "float32", "float64"), ("int32", "int64")
COMBINE = {"min": np.minimum, "max": np.maximum, "product": np.multiply}


def drawn(size: int, dtype: str, operation: str = "sum", key: str = "key") -> list:
    return reference.inputs(key, [(5000,)] * size, dtype, operation)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bfloat16"])
def test_inputs_depend_on_key_and_rank_only(dtype: str) -> None:
    two, three = drawn(2, dtype, "product"), drawn(3, dtype, "product")
    assert all((a == b).all() for a, b in zip(two, three))
    assert (two[0] != two[1]).any() and (two[0] != drawn(2, dtype, "product", "x")[0]).any()
    assert all(array.all() for array in two)  # no factor hides the others


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("operation", reference.REDUCTIONS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_any_order_of_rounding_is_right_and_a_lost_contribution_is_not(
    operation: str, dtype: str, size: int
) -> None:
    arrays = drawn(size, dtype, operation)
    expected = reference.reduced(operation, arrays, dtype)
    for ordered in (arrays, arrays[::-1]):
        got = functools.reduce(COMBINE.get(operation, np.add), ordered)
        if operation == "average":
            scale = np.dtype(dtype if dtype in FLOATS else "float64").type(1 / size)
            got = (got * scale).astype(dtype)
        assert mismatch(got, expected) == ""
    if size < 7:
        for wrong in (arrays[:-1], [*arrays[:-1], arrays[0]]):
            lost = reference.reduced(operation, wrong, dtype).values.astype(dtype)
            assert mismatch(lost, expected) != ""


def test_integers_use_their_range_and_do_not_overflow() -> None:
    for size in (2, 3, 64):
        arrays = drawn(size, "int64")
        exact = sum(array.astype(object) for array in arrays)
        assert (reference.reduced("sum", arrays, "int64").values == exact).all()
        assert max(abs(arrays[0])) > 2**53  # beyond what float64 could carry


def test_float64_detour_through_float32_is_not_right() -> None:
    arrays = drawn(2, "float64")
    got = (arrays[0].astype("float32") + arrays[1].astype("float32")).astype("float64")
    assert mismatch(got, reference.reduced("sum", arrays, "float64")) != ""


NAN, EMPTY, ZEROS = np.array([0.0, np.nan]), np.zeros((0, 5)), np.zeros((2, 3))
HALF = np.array([[0, 0, 0], [0.25, 0, 0.5]])


@pytest.mark.parametrize(
    ("got", "expected", "wrong"),
    [
        *((NAN, Expected(np.zeros(2), "float64", each), "got nan at element 1")
          for each in (0.0, 1.0, np.full(2, 1.0))),
        (HALF, Expected(ZEROS, "float64", 0.1), "got 0.25 at element 3 (max difference 0.5"),
        (ZEROS.T, reference.exactly(ZEROS), "shape (2, 3), got (3, 2)"),
        (ZEROS, Expected(ZEROS, "float32"), "type float32, got float64"),
        (EMPTY, reference.exactly(np.zeros((1, 5))), "shape"),
        (EMPTY, reference.exactly(EMPTY), ""),
    ],
)  # fmt: skip
def test_nan_and_another_shape_or_type_are_never_right(got, expected, wrong) -> None:
    found = mismatch(got, expected)
    assert wrong in found and bool(found) == bool(wrong)
