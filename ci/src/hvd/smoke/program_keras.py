"""Keras, on TensorFlow: ``fit`` with Horovod's optimizer and callback; see `Session`."""

from typing import Any, Dict

import horovod.keras as horovod
import keras
import numpy as np
from program_session import MOMENTUM, RATE, SHAPES, Arrays, Batches, Trainer

keras.backend.set_floatx("float64")
broadcast_by = "keras BroadcastGlobalVariablesCallback"


def trainers() -> Dict[str, Trainer]:
    return {"keras fit with DistributedOptimizer": _train}


def network(weights: Arrays) -> Any:
    (features, hidden), _, (_, outputs), _ = SHAPES
    first = keras.layers.Dense(hidden, activation="tanh", input_shape=(features,))
    made = keras.models.Sequential([first, keras.layers.Dense(outputs)])
    made.set_weights(weights)
    made.compile(optimizer=_sgd(), loss="mean_squared_error")
    return made


def weights(network: Any) -> Arrays:
    return network.get_weights()


def broadcast(network: Any) -> None:
    callback = horovod.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.set_model(network)
    # fit calls this after the first batch, which would have changed the weights
    callback.on_batch_end(0)


def _train(network: Any, batches: Batches, distributed: bool) -> None:
    optimizer = horovod.DistributedOptimizer(_sgd()) if distributed else _sgd()
    network.compile(optimizer=optimizer, loss="mean_squared_error")
    x, y = (np.concatenate(each) for each in zip(*batches))
    network.fit(x, y, batch_size=len(batches[0][0]), epochs=1, shuffle=False, verbose=0)


def _sgd() -> Any:
    return keras.optimizers.SGD(RATE, momentum=MOMENTUM)
