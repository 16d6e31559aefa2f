"""Distributed training steps equal the same steps of one process on the joined batches.

All frameworks train the same network: tanh of a linear layer, and a linear layer; mean squared
error; stochastic gradient descent with `RATE` and `MOMENTUM`; float64.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy as np
import program_reference as reference
from program_reference import Expected
from program_session import Session

RATE, MOMENTUM = 0.1, 0.9
#: Shapes of the network's weights: for each layer those of its inputs by outputs, and the bias.
SHAPES = ((5, 8), (8,), (8, 1), (1,))

_STEPS = 4
_BATCH = 6  # samples of one rank

Arrays = List[np.ndarray]
Batches = List[Tuple[np.ndarray, np.ndarray]]


class Trainer(NamedTuple):
    """One way of training with Horovod.

    Args:
        name: of its check.
        model: makes a network with weights, of `SHAPES`.
        weights: returns the weights of a network, in the order of `SHAPES`.
        train: makes a step for each batch; with Horovod if its last argument is true.
        broadcast_name: of the check of ``broadcast``.
        broadcast: gives the network of rank 0 to all; None if another trainer checks it.
    """

    name: str
    model: Callable[[Arrays], Any]
    weights: Callable[[Any], Arrays]
    train: Callable[[Any, Batches, bool], None]
    broadcast_name: str = ""
    broadcast: Optional[Callable[[Any], Any]] = None


def run(session: Session) -> None:
    """Check every trainer of the framework."""
    for trainer in session.trainers():
        _check(session, trainer)


def _check(session: Session, trainer: Trainer) -> None:
    elements = sum(int(np.prod(shape)) for shape in SHAPES)
    model = trainer.model(_weights(0))
    if trainer.broadcast:
        model = trainer.model(_weights(session.rank))  # until rank 0's is broadcast
        session.recorder.check(
            trainer.broadcast_name,
            lambda: trainer.broadcast(model),
            lambda _: _mismatch(trainer.weights(model), _weights(0), 0.0),
            "float64",
            elements,
        )
    joined = _batches(session.size)
    mine = slice(session.rank * _BATCH, (session.rank + 1) * _BATCH)

    def verify(_: Any) -> str:
        alone = trainer.model(_weights(0))
        trainer.train(alone, joined, False)
        # A mean over ranks of means over equal batches is the mean over the joined batch, up
        # to the order of additions: some hundred roundings of 1e-16 in float64, amplified a
        # little by each step.  A lost or unscaled gradient changes the weights by 1e-2.
        return _mismatch(trainer.weights(model), trainer.weights(alone), 1e-12)

    session.recorder.check(
        trainer.name,
        lambda: trainer.train(model, [(x[mine], y[mine]) for x, y in joined], True),
        verify,
        "float64",
        elements,
    )


def _weights(rank: int) -> Arrays:
    return [
        reference.inputs(f"weights {index}", [shape] * (rank + 1), "float64")[rank] / 3
        for index, shape in enumerate(SHAPES)
    ]


def _batches(size: int) -> Batches:
    """Return one joined batch of all ranks per step."""
    samples, features = size * _BATCH, SHAPES[0][0]
    x = reference.inputs("x", [(samples, features)] * _STEPS, "float64")
    y = reference.inputs("y", [(samples, 1)] * _STEPS, "float64")
    return list(zip(x, y))


def _mismatch(got: Arrays, wanted: Arrays, tolerance: float) -> str:
    for index, (mine, values) in enumerate(zip(got, wanted)):
        wrong = reference.mismatch(mine, Expected(values, "float64", tolerance))
        if wrong:
            return f"weight {index}: {wrong}"
    return ""
