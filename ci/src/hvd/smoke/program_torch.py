"""PyTorch in a `Session`."""

import os
from typing import Any, Dict, List

import horovod.torch as horovod
import numpy as np
import torch
from program_session import MOMENTUM, RATE, Arrays, Batches, Session, Trainer

# The ranks of a test share few cores; threads of their own would fight for them.
torch.set_num_threads(1)


class Framework(Session):
    hvd = horovod
    broadcast_by = "broadcast_parameters"

    def place(self, device: str, local_rank: int) -> None:
        self.device = torch.device("cuda" if device == "gpu" else "cpu")
        if device == "gpu":
            count = torch.cuda.device_count()
            if horovod.local_size() > count:
                # NCCL refuses two ranks of one host on one GPU, and reads the host from here:
                # https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/misc/utils.cc (getHostHash)
                os.environ["NCCL_HOSTID"] = str(horovod.rank())
            torch.cuda.set_device(local_rank % count)

    def join(self) -> int:
        # what a rank that has joined contributes has to be where the others' tensors are
        on_gpu = self.device.type == "cuda"
        return horovod.join(torch.cuda.current_device() if on_gpu else -1)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def tensor(self, array: np.ndarray, dtype: str = "") -> torch.Tensor:
        made = torch.from_numpy(array.copy()).to(self.device)
        return made.to(torch.bfloat16) if dtype == "bfloat16" else made

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        narrow = tensor.dtype == torch.bfloat16
        return (tensor.float() if narrow else tensor).detach().cpu().numpy()

    def fused_allreduce(self, tensors: Dict[str, Any]) -> List[Any]:
        handles = [
            horovod.allreduce_async(tensor, name=name, **self.reduction("sum"))
            for name, tensor in tensors.items()
        ]
        return [horovod.synchronize(handle) for handle in handles]

    def trainers(self) -> Dict[str, Trainer]:
        return {"DistributedOptimizer steps": self.train}

    def network(self, weights: Arrays) -> torch.nn.Module:
        layers = [torch.nn.Linear(*each.shape).double() for each in weights[::2]]
        network = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1]).to(self.device)
        with torch.no_grad():
            for parameter, each in zip(network.parameters(), weights):
                parameter.copy_(self.tensor(each.T))
        return network

    def weights(self, network: torch.nn.Module) -> Arrays:
        return [self.array(each).T for each in network.parameters()]

    def broadcast(self, network: torch.nn.Module) -> None:
        horovod.broadcast_parameters(network.state_dict(), root_rank=0)

    def train(self, network: torch.nn.Module, batches: Batches, distributed: bool) -> None:
        optimizer: Any = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
        if distributed:
            named = network.named_parameters()
            optimizer = horovod.DistributedOptimizer(optimizer, named_parameters=named)
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(network(self.tensor(x)), self.tensor(y)).backward()
            optimizer.step()
