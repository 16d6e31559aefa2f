"""One rank: its framework, its Horovod, what that Horovod can do, and how it trains.

All frameworks train the same network: tanh of a linear layer, and a linear layer; mean squared
error; stochastic gradient descent with `RATE` and `MOMENTUM`; float64.
"""

import argparse
import functools
import importlib
import inspect
import os
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import horovod
import numpy as np
import program_reference as reference
from program_reference import Expected

RATE, MOMENTUM = 0.1, 0.9
#: Shapes of the network's weights: for each layer those of its inputs by outputs, and the bias.
SHAPES = ((5, 8), (8,), (8, 1), (1,))

_STEPS = 4
_BATCH = 6  # samples of one rank

Arrays = List[np.ndarray]
Batches = List[Tuple[np.ndarray, np.ndarray]]
#: Make a step for each batch on a network; with Horovod if the last argument is true.
Trainer = Callable[[Any, Batches, bool], None]


class Session:
    """One rank; each module ``program_<framework>`` has a class ``Framework`` derived from this.

    Such a class has ``hvd``, the framework's Horovod, and these methods: ``place(device,
    local_rank)`` puts tensors on the CPU, or on the GPU of this rank (ranks may share one);
    ``tensor(array, dtype)`` returns a tensor with a copy of an array, and ``array(tensor)`` the
    data of a tensor, of float32 for bfloat16.

    To train, it has: ``network(weights)`` returns a network with weights of
    `SHAPES`, and ``weights(network)`` these; ``broadcast(network)`` gives the
    network of rank 0 to all by the function named ``broadcast_by``; ``trainers()`` returns, by
    the names of their checks, each `Trainer`.
    """

    hvd: ModuleType

    def __init__(self, recorder: Any, arguments: argparse.Namespace) -> None:
        self.recorder = recorder
        self.rank, self.size = self.hvd.rank(), self.hvd.size()
        self.quick, self.keras, self.mpi4py = arguments.quick, arguments.keras, arguments.mpi4py
        self.mpi = None  #: mpi4py.MPI, once it is imported
        self.version = tuple(int(part) for part in horovod.__version__.split(".")[:3])
        self.dtypes = ["float16", "float32", "float64", "int32", "int64"]
        # Horovod as released has no bfloat16
        self.dtypes += ["bfloat16"] * hasattr(getattr(self.hvd, "Compression", None), "bf16")
        self.not_supported: Dict[str, str] = {}
        if os.environ.get("HOROVOD_CPU_OPERATIONS", "").lower() == "ccl":
            # GetCCLDataType in horovod/common/ops/ccl_operations.cc has no float16
            self.dtypes.remove("float16")
            self.leave_out("float16", "Type float16 is not supported in CCL")
            for name in ("process sets", "reducescatter"):
                self.not_supported[name] = "not supported yet with oneCCL operations"
        self.place(arguments.device, self.hvd.local_rank())

    def join(self) -> Any:
        """Call ``hvd.join``; return what it returns."""
        return self.hvd.join()

    def wait(self) -> None:
        """Return when the framework has done all that it was given."""

    def fused_allreduce(self, tensors: Dict[str, Any]) -> List[Any]:
        """Sum every tensor over the ranks, all of them in flight at once."""
        return [self.allreduce(tensor, name, "sum") for name, tensor in tensors.items()]

    def allreduce_in_place(self, tensor: Any, name: str) -> None:
        """Sum ``tensor`` over the ranks into itself."""
        self.hvd.allreduce_(tensor, name=name, **self.reduction("sum"))

    def controlled_by(self, name: str) -> bool:
        """Say if ``mpi`` or ``gloo`` is the controller; before 0.18 there was MPI alone."""
        ask = getattr(self.hvd, f"{name}_enabled", None)
        return ask() if ask else name == "mpi"

    def reduction(self, operation: str) -> Dict[str, Any]:
        """Return Horovod's argument for a reduction, such as "sum"."""
        if hasattr(self.hvd, "Sum"):
            return {"op": getattr(self.hvd, operation.capitalize())}
        return {"average": operation == "average"}  # before 0.19

    def allreduce(self, tensor: Any, name: str, operation: str, **arguments: Any) -> Any:
        """Call ``hvd.allreduce`` with the arguments that this Horovod has."""
        arguments.update(self.reduction(operation))
        parameters = inspect.signature(self.hvd.allreduce).parameters
        # horovod.tensorflow has it since 0.20
        if "name" in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
            arguments["name"] = name
        return self.hvd.allreduce(tensor, **arguments)

    def meet(self) -> None:
        """Return when every rank has come here."""
        if hasattr(self.hvd, "barrier"):
            self.hvd.barrier()
        else:
            self.array(self.allreduce(self.tensor(np.zeros(1)), "meet", "sum"))

    def gather(self, numbers: Sequence[float], name: str) -> np.ndarray:
        """Return the ``numbers`` of all ranks, one row per rank."""
        return self.array(self.hvd.allgather(self.tensor(np.array([numbers])), name=name))

    def check(
        self,
        operation: str,
        call: Callable[[], Any],
        expected: Any,
        dtype: Optional[str] = None,
        elements: Optional[int] = None,
    ) -> None:
        """Check that the result of ``call`` is ``expected`` as `mismatch` has it."""
        self.recorder.check(
            operation, call, lambda got: self.mismatch(got, expected), dtype, elements
        )

    def collective(
        self,
        operation: str,
        call: Callable[..., Any],
        expect: Callable[[List[np.ndarray], str], Any],
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[str] = (),
        reduction: str = "sum",
    ) -> None:
        """Check for each of ``dtypes``, or all, that ``call(tensor, name=name)`` is as expected.

        Args:
            expect: returns the right result for the contributions of all ranks, and their type.
            shapes: of what each rank contributes.
        """
        for dtype in dtypes or self.dtypes:
            arrays = reference.inputs(operation, shapes, dtype, reduction)
            mine = arrays[self.rank]
            # the name has to be the same on all ranks
            name = f"{operation} {dtype} {arrays[0].size}"
            start = functools.partial(call, self.tensor(mine, dtype), name=name)
            self.check(operation, start, expect(arrays, dtype), dtype, mine.size)

    def mismatch(self, got: Any, expected: Any) -> str:
        """Return how a result differs from what is ``expected``, "" if it does not.

        That is an `Expected` for a tensor, a list for several results, or else an equal object.
        """
        if isinstance(expected, Expected):
            return reference.mismatch(self.array(got), expected)
        if not isinstance(expected, list):
            return "" if got == expected else f"expected {expected!r}, got {got!r}"
        if len(got) != len(expected):
            return f"expected {len(expected)} results, got {len(got)}"
        wrong = map(self.mismatch, got, expected)
        return next((f"result {i}: {text}" for i, text in enumerate(wrong) if text), "")

    def leave_out(self, operation: str, reason: str) -> None:
        """Record that something is not checked, and why."""
        self.recorder.emit("left_out", operation=operation, reason=reason)

    def lacks(self, operation: str, function: str) -> bool:
        """Say if Horovod has no ``operation`` here, and record it then."""
        reason = self.not_supported.get(operation, "")
        if not hasattr(self.hvd, function):
            reason = f"{self.hvd.__name__} {horovod.__version__} has no {function}"
        if reason:
            self.leave_out(operation, reason)
        return bool(reason)

    def reducible(self, operation: str, since: Tuple[int, int]) -> List[str]:
        """Return the element types that Horovod can reduce by ``operation``.

        Before the version ``since`` the framework divided integers, each in its own way.
        """
        if operation != "average" or self.version >= since:
            return self.dtypes
        return [dtype for dtype in self.dtypes if not dtype.startswith("int")]


def training(session: Session) -> None:
    """Check the broadcast and every way of training of the framework, and of Keras."""
    compare(session, session)
    if session.keras:
        compare(session, importlib.import_module("program_keras"))


def compare(session: Session, framework: Any) -> None:
    """Check that distributed steps equal those of one process on the joined batches.

    The ``framework`` has what `Session` says of training.
    """
    samples, features = session.size * _BATCH, SHAPES[0][0]
    x = reference.inputs("x", [(samples, features)] * _STEPS, "float64")
    y = reference.inputs("y", [(samples, 1)] * _STEPS, "float64")
    joined = list(zip(x, y))  # a batch of all ranks per step
    mine = slice(session.rank * _BATCH, (session.rank + 1) * _BATCH)

    def check(name: str, network: Any, call: Callable[[], None], alone: Any, most: float) -> None:
        def verify(_: Any) -> str:
            for index, pair in enumerate(zip(framework.weights(network), alone())):
                expected = reference.Expected(pair[1], "float64", most)
                wrong = reference.mismatch(pair[0], expected)
                if wrong:
                    return f"weight {index}: {wrong}"
            return ""

        elements = sum(int(np.prod(shape)) for shape in SHAPES)
        session.recorder.check(name, call, verify, "float64", elements)

    network = framework.network(_weights(session.rank))  # until rank 0's is broadcast
    call = lambda: framework.broadcast(network)  # noqa: E731
    check(framework.broadcast_by, network, call, lambda: _weights(0), 0.0)
    for name, train in framework.trainers().items():
        distributed = framework.network(_weights(0))

        def steps(train: Any = train, network: Any = distributed) -> None:
            train(network, [(x[mine], y[mine]) for x, y in joined], True)

        def alone(train: Any = train) -> Arrays:
            network = framework.network(_weights(0))
            train(network, joined, False)
            return framework.weights(network)

        # A mean over ranks of means over equal batches is the mean over the joined batch, up
        # to the order of additions: some hundred roundings of 1e-16 in float64, amplified a
        # little by each step.  A lost or unscaled gradient changes the weights by 1e-2.
        check(name, distributed, steps, alone, 1e-12)


def _weights(rank: int) -> Arrays:
    return [
        reference.inputs(f"weights {index}", [shape] * (rank + 1), "float64")[rank] / 3
        for index, shape in enumerate(SHAPES)
    ]
