"""Distributed training steps equal the same steps of one process on the joined batches.

What differs between frameworks, and between the ways of one framework, is in a `Trainer` for
each.  All train the same network: tanh of a linear layer, and a linear layer; mean squared
error; stochastic gradient descent with `RATE` and `MOMENTUM`; float64.
"""

from typing import Any, List, Optional, Tuple

import numpy as np
import program_reference as reference
from program_session import Session

RATE, MOMENTUM = 0.1, 0.9
#: Shapes of the network's weights: for each layer those of its inputs by outputs, and the bias.
SHAPES = ((5, 8), (8,), (8, 1), (1,))

_STEPS = 4
_BATCH = 6  # samples of one rank

Batches = List[Tuple[np.ndarray, np.ndarray]]


class Trainer:
    """One way of training with Horovod; to be derived from.

    ``broadcast_name`` is None where it has no broadcast of its own to check.
    """

    steps_name = ""
    broadcast_name: Optional[str] = None

    def model(self, weights: List[np.ndarray]) -> Any:
        """A new network with ``weights``, of `SHAPES`."""
        raise NotImplementedError

    def weights(self, model: Any) -> List[np.ndarray]:
        """The weights of ``model``, in the order of `SHAPES`."""
        raise NotImplementedError

    def broadcast(self, model: Any) -> None:
        """Give the model of rank 0 to all."""
        raise NotImplementedError

    def train(self, model: Any, batches: Batches, distributed: bool) -> None:
        """A step for each of ``batches``; with Horovod where ``distributed``."""
        raise NotImplementedError


def run(session: Session) -> None:
    """Check every trainer of the framework."""
    for trainer in session.framework.trainers(session):
        _check(session, trainer)


def _check(session: Session, trainer: Trainer) -> None:
    elements = sum(int(np.prod(shape)) for shape in SHAPES)
    model = trainer.model(_weights(0))
    if trainer.broadcast_name:
        model = trainer.model(_weights(session.rank))  # until rank 0's is broadcast
        session.recorder.check(
            trainer.broadcast_name,
            lambda: trainer.broadcast(model),
            lambda _: _compare(trainer.weights(model), _weights(0), 0.0),
            "float64",
            elements,
        )
    alone = trainer.model(_weights(0))
    joined = _batches(session.size)
    mine = slice(session.rank * _BATCH, (session.rank + 1) * _BATCH)

    def verify(_: Any) -> str:
        trainer.train(alone, joined, distributed=False)
        # A mean over ranks of means over equal batches is the mean over the joined batch, up
        # to the order of additions: some hundred roundings of 1e-16 in float64, amplified a
        # little by each step.  A lost or unscaled gradient changes the weights by 1e-2.
        return _compare(trainer.weights(model), trainer.weights(alone), 1e-12)

    session.recorder.check(
        trainer.steps_name,
        lambda: trainer.train(model, [(x[mine], y[mine]) for x, y in joined], distributed=True),
        verify,
        "float64",
        elements,
    )


def _weights(seed: int) -> List[np.ndarray]:
    return [
        reference.inputs(f"weights {index}", seed + 1, shape, "float64")[seed] / 3
        for index, shape in enumerate(SHAPES)
    ]


def _batches(size: int) -> Batches:
    """One joined batch of all ranks per step."""
    samples, features = size * _BATCH, SHAPES[0][0]
    return [
        (
            reference.inputs("x", step + 1, (samples, features), "float64")[step],
            reference.inputs("y", step + 1, (samples, 1), "float64")[step],
        )
        for step in range(_STEPS)
    ]


def _compare(got: List[np.ndarray], expected: List[np.ndarray], tolerance: float) -> str:
    for index, (mine, wanted) in enumerate(zip(got, expected)):
        wrong = reference.mismatch(mine, wanted, "float64", tolerance)
        if wrong:
            return f"weight {index}: {wrong}"
    return ""
