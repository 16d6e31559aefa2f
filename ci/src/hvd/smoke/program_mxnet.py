"""MXNet in a `Session`."""

from typing import Any, Dict, List

import horovod.mxnet as horovod
import mxnet as mx
import numpy as np
from program_session import MOMENTUM, RATE, Arrays, Batches, Session, Trainer

# A rank may contribute no rows, and a shape with a zero in it means "unknown" otherwise:
# https://mxnet.apache.org/versions/1.9.1/api/python/docs/api/mxnet/util/index.html
mx.util.set_np_shape(True)


class Framework(Session):
    hvd = horovod
    broadcast_by = "broadcast_parameters"

    def place(self, device: str, local_rank: int) -> None:
        on_gpu = device == "gpu"
        self.context = mx.gpu(local_rank % mx.context.num_gpus()) if on_gpu else mx.cpu()

    def wait(self) -> None:
        mx.nd.waitall()

    def tensor(self, array: np.ndarray, dtype: str = "") -> mx.nd.NDArray:
        return mx.nd.array(array, ctx=self.context, dtype=array.dtype)

    def array(self, tensor: mx.nd.NDArray) -> np.ndarray:
        return tensor.asnumpy()

    def trainers(self) -> Dict[str, Trainer]:
        names = "DistributedTrainer steps", "DistributedOptimizer steps"
        return dict(zip(names, (self.train_by_trainer, self.train_by_optimizer)))

    def network(self, weights: Arrays) -> mx.gluon.nn.Sequential:
        network = mx.gluon.nn.Sequential()
        for each, activation in zip(weights[::2], ("tanh", None)):
            inputs, outputs = each.shape
            network.add(mx.gluon.nn.Dense(outputs, activation, in_units=inputs, dtype="float64"))
        network.initialize(ctx=self.context)
        for parameter, each in zip(_parameters(network), weights):
            parameter.set_data(self.tensor(each.T))
        return network

    def weights(self, network: mx.gluon.nn.Sequential) -> Arrays:
        return [self.array(parameter.data()).T for parameter in _parameters(network)]

    def broadcast(self, network: mx.gluon.nn.Sequential) -> None:
        horovod.broadcast_parameters(dict(enumerate(_parameters(network))), root_rank=0)

    def differentiate(self, network: mx.gluon.nn.Sequential, x: np.ndarray, y: np.ndarray) -> None:
        with mx.autograd.record():
            loss = mx.nd.mean(mx.nd.square(network(self.tensor(x)) - self.tensor(y)))
        loss.backward()

    def train_by_trainer(
        self, network: mx.gluon.nn.Sequential, batches: Batches, distributed: bool
    ) -> None:
        kind = horovod.DistributedTrainer if distributed else mx.gluon.Trainer
        settings = {"learning_rate": RATE, "momentum": MOMENTUM}
        trainer = kind(network.collect_params(), "sgd", settings)
        for x, y in batches:
            self.differentiate(network, x, y)
            trainer.step(1)  # the loss is a mean already

    def train_by_optimizer(
        self, network: mx.gluon.nn.Sequential, batches: Batches, distributed: bool
    ) -> None:
        optimizer: Any = mx.optimizer.SGD(learning_rate=RATE, momentum=MOMENTUM)
        if distributed:
            optimizer = horovod.DistributedOptimizer(optimizer)
        parameters = _parameters(network)
        states = [optimizer.create_state(i, each.data()) for i, each in enumerate(parameters)]
        for x, y in batches:
            self.differentiate(network, x, y)
            for i, each in enumerate(parameters):
                optimizer.update(i, each.data(), each.grad(), states[i])


def _parameters(network: mx.gluon.nn.Sequential) -> List[mx.gluon.Parameter]:
    """Return weight and bias of one layer after the other."""
    return [parameter for layer in network for parameter in (layer.weight, layer.bias)]
