"""TensorFlow behind the interface that ``program_session`` expects of a framework."""

import functools
import re
from typing import Any, Dict, List

import horovod.tensorflow as horovod
import numpy as np
import tensorflow as tf
from program_session import Session
from program_training import MOMENTUM, RATE, Batches, Trainer

_NOT_ALLOWED = "horovod.tensorflow: value for attr 'T' is not in the list of allowed values"
#: Operations and element types that are not checked, with the reason.
#: Source: horovod 0.28.1, horovod/tensorflow/mpi_ops.cc (REGISTER_OP).
LEFT_OUT = (
    ("every operation", "bfloat16", _NOT_ALLOWED),
    ("reductions", "bool", _NOT_ALLOWED),
    ("reductions", "int16", _NOT_ALLOWED),
    ("reductions", "uint16", _NOT_ALLOWED),
    ("reducescatter", "int8", _NOT_ALLOWED),
    ("reducescatter", "uint8", _NOT_ALLOWED),
)


def place(device: str, local_rank: int) -> None:
    """Put tensors on the CPU, or on the GPU of this rank; ranks may share one."""
    # The ranks of a test share few cores; threads of their own would fight for them.
    if tf.__version__.startswith("1."):
        options = {"device_count": {"GPU": 0}}
        if device == "gpu":
            number = str(local_rank % len(tf.config.experimental.list_physical_devices("GPU")))
            gpu = tf.compat.v1.GPUOptions(visible_device_list=number, allow_growth=True)
            options = {"gpu_options": gpu}
        tf.compat.v1.enable_eager_execution(
            tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, **options
            )
        )
        return
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    mine = []
    if device == "gpu":
        gpus = tf.config.experimental.list_physical_devices("GPU")
        mine = [gpus[local_rank % len(gpus)]]
        tf.config.experimental.set_memory_growth(mine[0], True)
    tf.config.experimental.set_visible_devices(mine, "GPU")


def wait() -> None:
    """Return when the GPU has done all that it was given."""
    devices = getattr(tf.test, "experimental", None)
    if hasattr(devices, "sync_devices"):
        devices.sync_devices()


def tensor(array: np.ndarray) -> tf.Tensor:
    """A tensor with a copy of ``array``."""
    return tf.constant(array)


def array(tensor: tf.Tensor) -> np.ndarray:
    """The data of a tensor."""
    return tensor.numpy()


def fused_allreduce(session: Session, tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Sum every tensor over the ranks, all of them in flight at once: in a graph."""
    names = [re.sub(r"\W", "_", name) for name in tensors]

    @tf.function
    def every(arguments):
        return [
            session.allreduce(argument, name, "sum") for argument, name in zip(arguments, names)
        ]

    return dict(zip(tensors, every(list(tensors.values()))))


def allreduce_in_place(session: Session, tensor: tf.Tensor, name: str) -> None:
    """Sum ``tensor`` over the ranks; into a new tensor, as TensorFlow's do not change."""
    session.allreduce(tensor, name, "sum")


def trainers(session: Session) -> List[Trainer]:
    """The ways of training."""
    found: List[Trainer] = [_Tape(), _Optimizer()]
    if session.keras:
        import program_keras

        found.append(program_keras.Fit())
    return found


class _Variables(Trainer):
    def model(self, weights: List[np.ndarray]) -> List[tf.Variable]:
        return [tf.Variable(each) for each in weights]

    def weights(self, model: List[tf.Variable]) -> List[np.ndarray]:
        return [variable.numpy() for variable in model]


def _optimizer() -> Any:
    # Keras' optimizers are checked where Keras is
    return tf.compat.v1.train.MomentumOptimizer(RATE, MOMENTUM)


def _loss(model: List[tf.Variable], x: np.ndarray, y: np.ndarray) -> tf.Tensor:
    inner, bias, outer, last = model
    hidden = tf.tanh(tf.matmul(tf.constant(x), inner) + bias)
    return tf.reduce_mean(tf.square(tf.matmul(hidden, outer) + last - tf.constant(y)))


class _Tape(_Variables):
    steps_name = "DistributedGradientTape steps"
    broadcast_name = "broadcast_variables"

    def broadcast(self, model: List[tf.Variable]) -> None:
        horovod.broadcast_variables(model, root_rank=0)

    def train(self, model: List[tf.Variable], batches: Batches, distributed: bool) -> None:
        optimizer = _optimizer()
        for x, y in batches:
            with tf.GradientTape() as tape:
                loss = _loss(model, x, y)
            if distributed:
                tape = horovod.DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(tape.gradient(loss, model), model))


class _Optimizer(_Variables):
    steps_name = "DistributedOptimizer steps"

    def train(self, model: List[tf.Variable], batches: Batches, distributed: bool) -> None:
        optimizer = _optimizer()
        if distributed:
            optimizer = horovod.DistributedOptimizer(optimizer)
        for x, y in batches:
            optimizer.minimize(functools.partial(_loss, model, x, y), var_list=model)
