"""PyTorch behind the interface that ``program_session`` expects of a framework."""

from typing import Any, Dict, List

import horovod.torch as horovod
import numpy as np
import torch
from program_session import Session
from program_training import MOMENTUM, RATE, Batches, Trainer

#: Operations and element types that are not checked, with the reason.
#: Source: horovod 0.28.1, horovod/torch/mpi_ops_v2.cc (PYBIND11_MODULE) and mpi_ops.py.
LEFT_OUT = (
    ("every operation", "bfloat16", "Tensor type torch.BFloat16Tensor is not supported"),
    ("every operation", "bool", "Tensor type torch.BoolTensor is not supported"),
    ("reductions", "uint8", "Tensor type torch.ByteTensor is not supported"),
    ("reductions", "int8", "Tensor type torch.CharTensor is not supported"),
    ("reductions", "int16", "Tensor type torch.ShortTensor is not supported"),
)

# The ranks of a test share few cores; threads of their own would fight for them.
torch.set_num_threads(1)

_device = torch.device("cpu")


def place(device: str, local_rank: int) -> None:
    """Put tensors on the CPU, or on the GPU of this rank; ranks may share one."""
    global _device
    if device == "gpu":
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
        _device = torch.device("cuda")


def wait() -> None:
    """Return when the GPU has done all that it was given."""
    if _device.type == "cuda":
        torch.cuda.synchronize()


def tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor with a copy of ``array``."""
    return torch.from_numpy(array.copy()).to(_device)


def array(tensor: torch.Tensor) -> np.ndarray:
    """The data of a tensor."""
    return tensor.detach().cpu().numpy()


def fused_allreduce(session: Session, tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Sum every tensor over the ranks, all of them in flight at once."""
    handles = {
        name: horovod.allreduce_async(each, name=name, **session.reduction("sum"))
        for name, each in tensors.items()
    }
    return {name: horovod.synchronize(handle) for name, handle in handles.items()}


def allreduce_in_place(session: Session, tensor: torch.Tensor, name: str) -> None:
    """Sum ``tensor`` over the ranks into itself."""
    horovod.allreduce_(tensor, name=name, **session.reduction("sum"))


def trainers(session: Session) -> List[Trainer]:
    """The ways of training."""
    return [_Optimizer()]


class _Optimizer(Trainer):
    steps_name = "DistributedOptimizer steps"
    broadcast_name = "broadcast_parameters"

    def model(self, weights: List[np.ndarray]) -> torch.nn.Module:
        layers = [torch.nn.Linear(*each.shape).double() for each in weights[::2]]
        model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1]).to(_device)
        with torch.no_grad():
            for parameter, each in zip(model.parameters(), weights):
                parameter.copy_(tensor(each.T))
        return model

    def weights(self, model: torch.nn.Module) -> List[np.ndarray]:
        return [array(parameter).T for parameter in model.parameters()]

    def broadcast(self, model: torch.nn.Module) -> None:
        horovod.broadcast_parameters(model.state_dict(), root_rank=0)

    def train(self, model: torch.nn.Module, batches: Batches, distributed: bool) -> None:
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        if distributed:
            optimizer = horovod.DistributedOptimizer(
                optimizer, named_parameters=model.named_parameters()
            )
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(tensor(x)), tensor(y)).backward()
            optimizer.step()
