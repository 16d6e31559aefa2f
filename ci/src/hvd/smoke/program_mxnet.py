"""MXNet behind the interface that ``program_session`` expects of a framework."""

from typing import Any, Dict, List

import horovod.mxnet as horovod
import mxnet as mx
import numpy as np
from program_session import Session
from program_training import MOMENTUM, RATE, Batches, Trainer

_UNSUPPORTED = "GetDType: Type is not supported in MPI mode"
#: Operations and element types that are not checked, with the reason.
#: Source: horovod 0.28.1, horovod/mxnet/tensor_util.cc (TensorUtil::GetDType).
LEFT_OUT = (
    ("every operation", "bfloat16", _UNSUPPORTED),
    ("every operation", "bool", _UNSUPPORTED),
)

# A rank may contribute no rows, and a shape with a zero in it means "unknown" otherwise:
# https://mxnet.apache.org/versions/1.9.1/api/python/docs/api/mxnet/util/index.html
mx.util.set_np_shape(True)

_context = mx.cpu()


def place(device: str, local_rank: int) -> None:
    """Put tensors on the CPU, or on the GPU of this rank; ranks may share one."""
    global _context
    if device == "gpu":
        _context = mx.gpu(local_rank % mx.context.num_gpus())


def wait() -> None:
    """Return when MXNet's engine has done all that it was given."""
    mx.nd.waitall()


def tensor(array: np.ndarray) -> mx.nd.NDArray:
    """A tensor with a copy of ``array``."""
    return mx.nd.array(array, ctx=_context, dtype=array.dtype)


def array(tensor: mx.nd.NDArray) -> np.ndarray:
    """The data of a tensor."""
    return tensor.asnumpy()


def fused_allreduce(session: Session, tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Sum every tensor over the ranks, all of them in flight at once: MXNet's engine waits."""
    return {name: session.allreduce(each, name, "sum") for name, each in tensors.items()}


def allreduce_in_place(session: Session, tensor: mx.nd.NDArray, name: str) -> None:
    """Sum ``tensor`` over the ranks into itself."""
    horovod.allreduce_(tensor, name=name, **session.reduction("sum"))


def trainers(session: Session) -> List[Trainer]:
    """The ways of training."""
    return [_Trainer(), _Optimizer()]


class _Network(Trainer):
    def model(self, weights: List[np.ndarray]) -> mx.gluon.nn.Sequential:
        model = mx.gluon.nn.Sequential()
        for each, activation in zip(weights[::2], ("tanh", None)):
            inputs, outputs = each.shape
            model.add(mx.gluon.nn.Dense(outputs, activation, in_units=inputs, dtype="float64"))
        model.initialize(ctx=_context)
        for parameter, each in zip(_parameters(model), weights):
            parameter.set_data(tensor(each.T))
        return model

    def weights(self, model: mx.gluon.nn.Sequential) -> List[np.ndarray]:
        return [array(parameter.data()).T for parameter in _parameters(model)]


def _parameters(model: mx.gluon.nn.Sequential) -> List[mx.gluon.Parameter]:
    """Weight and bias of one layer after the other."""
    return [parameter for layer in model for parameter in (layer.weight, layer.bias)]


def _differentiate(model: mx.gluon.nn.Sequential, x: np.ndarray, y: np.ndarray) -> None:
    with mx.autograd.record():
        loss = mx.nd.mean(mx.nd.square(model(tensor(x)) - tensor(y)))
    loss.backward()


class _Trainer(_Network):
    steps_name = "DistributedTrainer steps"
    broadcast_name = "broadcast_parameters"

    def broadcast(self, model: mx.gluon.nn.Sequential) -> None:
        horovod.broadcast_parameters(dict(enumerate(_parameters(model))), root_rank=0)

    def train(self, model: mx.gluon.nn.Sequential, batches: Batches, distributed: bool) -> None:
        kind = horovod.DistributedTrainer if distributed else mx.gluon.Trainer
        trainer = kind(
            model.collect_params(), "sgd", {"learning_rate": RATE, "momentum": MOMENTUM}
        )
        for x, y in batches:
            _differentiate(model, x, y)
            trainer.step(1)  # the loss is a mean already


class _Optimizer(_Network):
    steps_name = "DistributedOptimizer steps"

    def train(self, model: mx.gluon.nn.Sequential, batches: Batches, distributed: bool) -> None:
        optimizer: Any = mx.optimizer.SGD(learning_rate=RATE, momentum=MOMENTUM)
        if distributed:
            optimizer = horovod.DistributedOptimizer(optimizer)
        parameters = _parameters(model)
        states = [optimizer.create_state(i, each.data()) for i, each in enumerate(parameters)]
        for x, y in batches:
            _differentiate(model, x, y)
            for i, each in enumerate(parameters):
                optimizer.update(i, each.data(), each.grad(), states[i])
