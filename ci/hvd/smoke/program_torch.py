"""PyTorch behind the interface that ``program_checks`` expects of a framework."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import horovod.torch as horovod
import numpy as np
import program_reference as reference
import torch
from program_checks import Session

#: Operations and element types that are not checked, with the reason.
#: Source: horovod 0.28.1, horovod/torch/mpi_ops_v2.cc (PYBIND11_MODULE) and mpi_ops.py.
LEFT_OUT = (
    ("every operation", "bfloat16", "Tensor type torch.BFloat16Tensor is not supported"),
    ("every operation", "bool", "Tensor type torch.BoolTensor is not supported"),
    ("reductions", "uint8", "Tensor type torch.ByteTensor is not supported"),
    ("reductions", "int8", "Tensor type torch.CharTensor is not supported"),
    ("reductions", "int16", "Tensor type torch.ShortTensor is not supported"),
)

_STEPS = 4
_BATCH = 6  # samples of one rank
_FEATURES, _HIDDEN = 5, 8

# The ranks of a test share few cores; threads of their own would fight for them.
torch.set_num_threads(1)


def tensor(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor with a copy of ``array``."""
    return torch.from_numpy(array.copy())


def array(tensor: torch.Tensor) -> np.ndarray:
    """The data of a CPU tensor."""
    return tensor.detach().numpy()


def fused_allreduce(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Sum every tensor over the ranks, all of them in flight at once."""
    handles = {
        name: horovod.allreduce_async(each, name=name, op=horovod.Sum)
        for name, each in tensors.items()
    }
    return {name: horovod.synchronize(handle) for name, handle in handles.items()}


def allreduce_in_place(tensor: torch.Tensor, name: str) -> None:
    """Sum ``tensor`` over the ranks into itself."""
    horovod.allreduce_(tensor, name=name, op=horovod.Sum)


def training(session: Session) -> None:
    """Distributed SGD steps equal the same steps of one process on the joined batches."""
    model = _model(seed=session.rank)  # different on every rank, until rank 0's is broadcast
    session.recorder.check(
        "broadcast_parameters",
        lambda: horovod.broadcast_parameters(model.state_dict(), root_rank=0),
        lambda _: _compare(model, _model(seed=0), 0.0),
        "float64",
        sum(parameter.numel() for parameter in model.parameters()),
    )
    optimizer = horovod.DistributedOptimizer(
        _sgd(model), named_parameters=model.named_parameters()
    )
    alone = _model(seed=0)
    joined = _batches(session.size)
    mine = slice(session.rank * _BATCH, (session.rank + 1) * _BATCH)
    session.recorder.check(
        "DistributedOptimizer steps",
        lambda: _train(model, optimizer, [(x[mine], y[mine]) for x, y in joined]),
        # A mean over ranks of means over equal batches is the mean over the joined batch, up
        # to the order of additions: some hundred roundings of 1e-16 in float64, amplified a
        # little by each step.  A lost or unscaled gradient changes the parameters by 1e-2.
        lambda _: _compare(model, _train(alone, _sgd(alone), joined), 1e-12),
        "float64",
        sum(parameter.numel() for parameter in model.parameters()),
    )


def _model(seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(_FEATURES, _HIDDEN), torch.nn.Tanh(), torch.nn.Linear(_HIDDEN, 1)
    ).double()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5, generator=generator)
    return model


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _batches(size: int) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """One joined batch of all ranks per step."""
    return [
        (
            tensor(reference.inputs("x", step + 1, (size * _BATCH, _FEATURES), "float64")[step]),
            tensor(reference.inputs("y", step + 1, (size * _BATCH, 1), "float64")[step]),
        )
        for step in range(_STEPS)
    ]


def _train(
    model: torch.nn.Module,
    optimizer: Any,
    batches: List[Tuple[torch.Tensor, torch.Tensor]],
) -> torch.nn.Module:
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


def _compare(got: torch.nn.Module, expected: torch.nn.Module, tolerance: float) -> str:
    parameters = dict(expected.named_parameters())
    for name, parameter in got.named_parameters():
        wrong = reference.mismatch(array(parameter), array(parameters[name]), "float64", tolerance)
        if wrong:
            return f"parameter {name}: {wrong}"
    return ""
