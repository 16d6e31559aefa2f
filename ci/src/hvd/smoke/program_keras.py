"""Keras, on TensorFlow: ``fit`` with Horovod's optimizer and callback."""

from typing import Any, List

import horovod.keras as horovod
import keras
import numpy as np
from program_training import MOMENTUM, RATE, SHAPES, Batches, Trainer

keras.backend.set_floatx("float64")


class Fit(Trainer):
    """``keras.Model.fit``."""

    steps_name = "keras fit with DistributedOptimizer"
    broadcast_name = "keras BroadcastGlobalVariablesCallback"

    def model(self, weights: List[np.ndarray]) -> Any:
        (features, hidden), _, (_, outputs), _ = SHAPES
        model = keras.models.Sequential(
            [
                keras.layers.Dense(hidden, activation="tanh", input_shape=(features,)),
                keras.layers.Dense(outputs),
            ]
        )
        model.set_weights(weights)
        model.compile(optimizer=_sgd(), loss="mean_squared_error")
        return model

    def weights(self, model: Any) -> List[np.ndarray]:
        return model.get_weights()

    def broadcast(self, model: Any) -> None:
        callback = horovod.callbacks.BroadcastGlobalVariablesCallback(0)
        callback.set_model(model)
        # what fit calls after the first batch, which would have changed the weights
        callback.on_batch_end(0)

    def train(self, model: Any, batches: Batches, distributed: bool) -> None:
        optimizer = horovod.DistributedOptimizer(_sgd()) if distributed else _sgd()
        model.compile(optimizer=optimizer, loss="mean_squared_error")
        x, y = (np.concatenate(each) for each in zip(*batches))
        model.fit(x, y, batch_size=len(batches[0][0]), epochs=1, shuffle=False, verbose=0)


def _sgd() -> Any:
    return keras.optimizers.SGD(RATE, momentum=MOMENTUM)
