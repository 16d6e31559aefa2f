"""TensorFlow in a `Session`."""

import functools
import re
from typing import Any, Dict, List

import horovod.tensorflow as horovod
import numpy as np
import tensorflow as tf
from program_session import MOMENTUM, RATE, Arrays, Batches, Session, Trainer


class Framework(Session):
    hvd = horovod
    broadcast_by = "broadcast_variables"

    def place(self, device: str, local_rank: int) -> None:
        gpus = tf.config.experimental.list_physical_devices("GPU") if device == "gpu" else []
        number = local_rank % len(gpus) if gpus else 0
        # The ranks of a test share few cores; threads of their own would fight for them.
        if tf.__version__.startswith("1."):
            v1 = tf.compat.v1
            options = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
            if device == "gpu":
                gpu = v1.GPUOptions(visible_device_list=str(number), allow_growth=True)
                options["gpu_options"] = gpu
            else:
                options["device_count"] = {"GPU": 0}
            v1.enable_eager_execution(v1.ConfigProto(**options))
            return
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        if device == "gpu":
            tf.config.experimental.set_memory_growth(gpus[number], True)
        tf.config.experimental.set_visible_devices(gpus[number : number + 1], "GPU")

    def wait(self) -> None:
        devices = getattr(tf.test, "experimental", None)
        if hasattr(devices, "sync_devices"):
            devices.sync_devices()

    def tensor(self, array: np.ndarray, dtype: str = "") -> tf.Tensor:
        return tf.cast(array, tf.bfloat16) if dtype == "bfloat16" else tf.constant(array)

    def array(self, tensor: tf.Tensor) -> np.ndarray:
        narrow = tensor.dtype == tf.bfloat16
        return (tf.cast(tensor, tf.float32) if narrow else tensor).numpy()

    def fused_allreduce(self, tensors: Dict[str, Any]) -> List[Any]:
        """Sum every tensor over the ranks, all of them in flight at once: in a graph."""
        names = [re.sub(r"\W", "_", name) for name in tensors]

        @tf.function
        def every(values: List[Any]) -> List[Any]:
            return [self.allreduce(value, name, "sum") for value, name in zip(values, names)]

        return every(list(tensors.values()))

    def allreduce_in_place(self, tensor: tf.Tensor, name: str) -> None:
        """Sum ``tensor`` over the ranks; into a new tensor, as TensorFlow's do not change."""
        self.allreduce(tensor, name, "sum")

    def trainers(self) -> Dict[str, Trainer]:
        names = "DistributedGradientTape steps", "DistributedOptimizer steps"
        return dict(zip(names, (_by_tape, _by_optimizer)))

    def network(self, weights: Arrays) -> List[tf.Variable]:
        return [tf.Variable(each) for each in weights]

    def weights(self, network: List[tf.Variable]) -> Arrays:
        return [variable.numpy() for variable in network]

    def broadcast(self, network: List[tf.Variable]) -> None:
        horovod.broadcast_variables(network, root_rank=0)


def _sgd() -> Any:
    # Keras' optimizers are checked where Keras is
    return tf.compat.v1.train.MomentumOptimizer(RATE, MOMENTUM)


def _loss(network: List[tf.Variable], x: np.ndarray, y: np.ndarray) -> tf.Tensor:
    inner, bias, outer, last = network
    hidden = tf.tanh(tf.matmul(tf.constant(x), inner) + bias)
    return tf.reduce_mean(tf.square(tf.matmul(hidden, outer) + last - tf.constant(y)))


def _by_tape(network: List[tf.Variable], batches: Batches, distributed: bool) -> None:
    optimizer = _sgd()
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = _loss(network, x, y)
        if distributed:
            tape = horovod.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, network), network))


def _by_optimizer(network: List[tf.Variable], batches: Batches, distributed: bool) -> None:
    optimizer = horovod.DistributedOptimizer(_sgd()) if distributed else _sgd()
    for x, y in batches:
        optimizer.minimize(functools.partial(_loss, network, x, y), var_list=network)
