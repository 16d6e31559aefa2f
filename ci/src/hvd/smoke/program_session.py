"""One rank in a run: its framework, its Horovod, and what that Horovod can do."""

import inspect
import os
from types import ModuleType
from typing import Any, Dict, NamedTuple, Tuple

import horovod
import numpy as np
import program_reference as reference
from program_record import Recorder

#: The element types that are checked where nothing is against it.
DTYPES = ("float16", "float32", "float64", "int32", "int64")


class Session(NamedTuple):
    """One rank in a run.

    Args:
        framework: the module that adapts a framework, such as ``program_torch``: its
            ``horovod``, ``LEFT_OUT``, ``place(device, local_rank)``, ``wait()``,
            ``tensor(array)``, ``array(tensor)``,
            ``fused_allreduce(session, tensors)``, ``allreduce_in_place(session, tensor, name)``
            and ``trainers(session)``, which gives what `program_training` needs.
        recorder: receives every operation.
        rank: Horovod's rank of this process.
        size: Horovod's number of ranks.
        quick: fewer sizes.
        keras: check Keras as well.
    """

    framework: Any
    recorder: Recorder
    rank: int
    size: int
    quick: bool = False
    keras: bool = False

    @property
    def hvd(self) -> ModuleType:
        """The framework's Horovod module, such as ``horovod.torch``."""
        return self.framework.horovod

    @property
    def version(self) -> Tuple[int, ...]:
        """Horovod's, such as (0, 28, 1)."""
        return tuple(int(part) for part in horovod.__version__.split(".")[:3])

    @property
    def over_oneccl(self) -> bool:
        """Whether oneCCL carries the operations."""
        return os.environ.get("HOROVOD_CPU_OPERATIONS", "").lower() == "ccl"

    @property
    def dtypes(self) -> Tuple[str, ...]:
        """The element types that are checked."""
        # GetCCLDataType in horovod/common/ops/ccl_operations.cc has no float16
        return DTYPES[1:] if self.over_oneccl else DTYPES

    def tensor(self, array: np.ndarray) -> Any:
        """A tensor of the framework with a copy of ``array``."""
        return self.framework.tensor(array)

    def array(self, tensor: Any) -> np.ndarray:
        """What is in ``tensor``."""
        return self.framework.array(tensor)

    def reduction(self, operation: str) -> Dict[str, Any]:
        """Horovod's argument for a reduction, such as "sum"."""
        if hasattr(self.hvd, "Sum"):
            return {"op": getattr(self.hvd, operation.capitalize())}
        return {"average": operation == "average"}  # before 0.19

    def allreduce(self, tensor: Any, name: str, operation: str, **arguments: Any) -> Any:
        """``hvd.allreduce`` with the arguments that this Horovod has."""
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

    def expect(self, tensor: Any, expected: np.ndarray, dtype: str, tolerance: Any = 0.0) -> str:
        """`program_reference.mismatch` for a tensor."""
        return reference.mismatch(self.array(tensor), expected, dtype, tolerance)

    def leave_out(self, operation: str, dtype: str, reason: str) -> None:
        """Record that something is not checked, and why."""
        self.recorder.emit("left-out", operation=operation, dtype=dtype, reason=reason)

    def lacks(self, function: str, operation: str) -> bool:
        """Whether Horovod has no ``function`` here; ``operation`` is then left out."""
        if hasattr(self.hvd, function):
            return False
        reason = f"{self.hvd.__name__} {horovod.__version__} has no {function}"
        self.leave_out(operation, "every type", reason)
        return True


def controller_enabled(hvd: ModuleType, name: str) -> bool:
    """Whether ``mpi`` or ``gloo`` is Horovod's controller; before 0.18 there was MPI alone."""
    ask = getattr(hvd, f"{name}_enabled", None)
    return ask() if ask else name == "mpi"
