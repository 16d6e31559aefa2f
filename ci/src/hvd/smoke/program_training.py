"""Distributed training steps equal the same steps of one process on the joined batches.

All frameworks train the same network: tanh of a linear layer, and a linear layer; mean squared
error; stochastic gradient descent with `RATE` and `MOMENTUM`; float64.
"""

from typing import Any, Callable, List, Tuple

import numpy as np
import program_reference as reference
from program_session import Session

RATE, MOMENTUM = 0.1, 0.9
#: Shapes of the network's weights: for each layer those of its inputs by outputs, and the bias.
SHAPES = ((5, 8), (8,), (8, 1), (1,))

_STEPS = 4
_BATCH = 6  # samples of one rank

Arrays = List[np.ndarray]
Batches = List[Tuple[np.ndarray, np.ndarray]]
#: Make a step for each batch on a network; with Horovod if the last argument is true.
Trainer = Callable[[Any, Batches, bool], None]


def run(session: Session) -> None:
    """Check the broadcast and every way of training of the framework, and of Keras."""
    compare(session, session)
    if session.keras:
        import program_keras

        compare(session, program_keras)


def compare(session: Session, framework: Any) -> None:
    """Check the ways of training of a ``framework``, which has what `Session` says of training."""
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
