"""The programs that the ranks run, on a Horovod of one rank that is made of NumPy."""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
import types

import numpy as np
import pytest

from hvd.host import probe
from hvd.smoke import program_record

DIRECTORY = pathlib.Path(program_record.__file__).parent
PROGRAMS = [*sorted(DIRECTORY.glob("program*.py")), pathlib.Path(probe.__file__)]
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


def test_every_framework_has_its_adapter(programs) -> None:
    program = importlib.import_module("program")
    for module in program.FRAMEWORKS.values():
        names = {
            node.name
            for node in ast.parse((DIRECTORY / f"{module}.py").read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert {"place", "wait", "tensor", "array"} <= names
        assert {"fused_allreduce", "allreduce_in_place", "trainers"} <= names


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
        if event == "left-out":
            self.left_out[fields["operation"]] = fields["reason"]

    @property
    def wrong(self) -> dict:
        return {key: detail for key, detail in self.checked.items() if detail}

    @property
    def operations(self) -> set:
        return {operation for operation, _, _ in self.checked}


def horovod_of(version: str, **changes) -> types.ModuleType:
    """Horovod's functions as of ``version`` on one rank: they give back what they get."""
    numbers = tuple(map(int, version.split(".")))
    functions: dict = {
        "local_size": lambda: 1,
        "allgather": lambda tensor, name=None: tensor,
        "broadcast": lambda tensor, root_rank, name=None: tensor,
    }
    if numbers < (0, 19):
        functions["allreduce"] = lambda tensor, average=True: tensor
    elif numbers < (0, 20):
        functions["allreduce"] = lambda tensor, average=None, op=None: tensor
    else:
        functions["allreduce"] = lambda tensor, name=None, op=None, process_set=None: tensor
    if numbers >= (0, 19):
        functions.update(Sum=1, Average=0)
    if numbers >= (0, 20):
        functions.update(
            alltoall=lambda tensor, splits, name: tensor,
            broadcast_object=lambda each, root_rank, name: each,
            allgather_object=lambda each, name: [each],
            join=lambda: None,
        )
    if numbers >= (0, 21):
        # horovod.tensorflow takes no name in 0.21
        functions["grouped_allreduce"] = lambda tensors, op: tensors
    if numbers >= (0, 23):
        every = types.SimpleNamespace(size=lambda: 1, rank=lambda: 0)
        functions.update(
            alltoall=lambda tensor, splits, name: (tensor, splits),
            join=lambda: 0,
            add_process_set=lambda ranks: every,
            global_process_set=every,
            barrier=lambda: None,
        )
    if numbers >= (0, 28):
        functions.update(Min=3, Max=4, Product=5, reducescatter=lambda tensor, name, op: tensor)
    module = types.ModuleType("horovod.numpy")
    for name, function in {**functions, **changes}.items():
        if function is not None:  # None among the changes: it is not there
            setattr(module, name, function)
    return module


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
    """A function that runs all checks on a Horovod of a version, and gives the recorder."""

    def run(version: str, **changes) -> Recorder:
        programs.__version__ = version
        checks = importlib.import_module("program_checks")
        training = importlib.import_module("program_training")
        session = importlib.import_module("program_session")
        framework = types.SimpleNamespace(
            horovod=horovod_of(version, **changes),
            LEFT_OUT=(("every operation", "bfloat16", "no such type"),),
            tensor=np.copy,
            array=np.asarray,
            fused_allreduce=lambda session, tensors: tensors,
            trainers=lambda session: [trainer(training)],
        )
        recorder = Recorder()
        one = session.Session(framework, recorder, 0, 1, quick=True)
        checks.run(one)
        checks.every_reducescatter(one)
        one.meet()
        return recorder

    return run


def trainer(training, factor: float = 1.0):
    """A trainer whose distributed steps are ``factor`` times what they should be."""

    class Numpy(training.Trainer):
        steps_name = "steps"
        broadcast_name = "broadcast"

        def model(self, weights):
            return [each.copy() for each in weights]

        def weights(self, model):
            return model

        def broadcast(self, model):
            pass

        def train(self, model, batches, distributed):
            for x, _ in batches:
                model[0] += x.mean() * (factor if distributed else 1.0)

    return Numpy()


def test_a_horovod_of_today_is_checked_in_full(checked) -> None:
    recorder = checked("0.28.1")
    assert recorder.wrong == {}
    assert recorder.left_out == {"every operation": "no such type"}
    assert recorder.operations >= {
        *(f"allreduce {name}" for name in ("sum", "average", "min", "max", "product")),
        *("fused allreduce sum", "grouped allreduce sum", "allgather ragged", "alltoall uneven"),
        *("broadcast from rank 0", "reducescatter sum", "reducescatter average"),
        *("allreduce sum in process set of all ranks", "broadcast_object", "allgather_object"),
        *("barrier", "join after uneven batches", "broadcast", "steps"),
    }


def test_clocks_of_several_hosts_are_not_compared(checked) -> None:
    recorder = checked("0.28.1", local_size=lambda: 0)
    assert "barrier" in recorder.operations and not recorder.wrong
    assert recorder.left_out["order of a barrier"] == "the ranks are on several hosts"


def test_ranks_have_met_when_their_last_sum_is_there(programs) -> None:
    """MXNet's operations give a tensor at once, and what is in it later."""
    programs.__version__ = "0.28.1"
    session = importlib.import_module("program_session")
    read = []
    framework = types.SimpleNamespace(
        horovod=horovod_of("0.28.1", barrier=None), tensor=np.copy, array=read.append
    )
    session.Session(framework, Recorder(), 0, 1).meet()
    assert len(read) == 1


def test_tensorflow_has_no_barrier(checked) -> None:
    """Ranks meet all the same, and the report says that the barrier was not checked."""
    recorder = checked("0.28.1", barrier=None)
    assert recorder.wrong == {}
    assert "barrier" not in recorder.operations
    assert recorder.left_out["barrier"] == "horovod.numpy 0.28.1 has no barrier"


def test_what_oneccl_cannot_do_is_left_out_and_said(checked, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "ccl")
    recorder = checked("0.28.1")
    assert recorder.wrong == {}
    assert not [key for key in recorder.checked if key[1] == "float16"]
    assert "not supported in CCL" in recorder.left_out["every operation"]
    for operation in ("process sets", "reducescatter"):
        assert "oneCCL" in recorder.left_out[operation]
        assert not [name for name in recorder.operations if operation.rstrip("s") in name]


@pytest.mark.parametrize(
    ("version", "absent"),
    [
        ("0.18.2", {"alltoall", "broadcast_object", "join", "grouped allreduce", "allreduce min"}),
        ("0.19.5", {"alltoall", "broadcast_object", "join", "grouped allreduce", "barrier"}),
        ("0.20.3", {"grouped allreduce", "process sets", "barrier", "reducescatter"}),
        ("0.23.0", {"allreduce product", "reducescatter"}),
    ],
)
def test_what_an_old_horovod_lacks_is_left_out_and_said(checked, version, absent) -> None:
    recorder = checked(version)
    assert recorder.wrong == {}
    assert absent <= set(recorder.left_out)
    reasons = [recorder.left_out[name] for name in absent]
    assert all(f"horovod.numpy {version} has no " in reason for reason in reasons)
    assert not any(name.startswith(tuple(absent)) for name in recorder.operations)
    assert "allreduce sum" in recorder.operations and "steps" in recorder.operations


def test_integers_are_not_averaged_where_the_framework_would(checked) -> None:
    for version, dtypes in (("0.19.5", 3), ("0.20.3", 5)):
        recorder = checked(version)
        averaged = {dtype for name, dtype, _ in recorder.checked if name == "allreduce average"}
        assert len(averaged) == dtypes
        assert ("allreduce average" in recorder.left_out) == (dtypes == 3)


def test_the_arguments_are_those_that_a_horovod_has(checked) -> None:
    said = []

    def old(tensor, average=True):
        said.append({"average": average})
        return tensor

    def new(tensor, op=None, name=None, process_set=None):
        said.append({"op": op, "name": name})
        return tensor

    checked("0.18.2", allreduce=old)
    assert {"average": False} in said and {"average": True} in said
    said.clear()
    checked("0.28.1", allreduce=new)
    assert {"op": 0, "name": "allreduce average float32 1"} in said


def test_a_wrong_result_is_seen(checked) -> None:
    recorder = checked(
        "0.28.1",
        alltoall=lambda tensor, splits, name: (tensor, splits + 1),
        join=lambda: 3,
        allgather_object=lambda each, name: [None],
    )
    assert {operation for operation, _, _ in recorder.wrong} == {
        "alltoall uneven",
        "join after uneven batches",
        "allgather_object",
    }


def test_a_lost_gradient_is_seen(programs) -> None:
    programs.__version__ = "0.28.1"
    training = importlib.import_module("program_training")
    session = importlib.import_module("program_session")
    recorder = Recorder()
    framework = types.SimpleNamespace(trainers=lambda session: [trainer(training, 0.99)])
    training.run(session.Session(framework, recorder, 0, 1))
    assert [operation for operation, _, _ in recorder.wrong] == ["steps"]
    assert "weight 0: expected" in next(iter(recorder.wrong.values()))


def test_only_the_model_of_rank_0_is_right_after_a_broadcast(programs) -> None:
    programs.__version__ = "0.28.1"
    training = importlib.import_module("program_training")
    session = importlib.import_module("program_session")
    recorder = Recorder()
    framework = types.SimpleNamespace(trainers=lambda session: [trainer(training)])
    training.run(session.Session(framework, recorder, 1, 2))
    assert "broadcast" in [operation for operation, _, _ in recorder.wrong]
