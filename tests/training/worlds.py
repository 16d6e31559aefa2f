"""Who trains: one process over the whole batch, Horovod, or DistributedDataParallel.

A case of `cases_torch` is one script for all of them.
"""

import contextlib
import os

import torch
import world
from world import SEED

#: Where all tensors are: TRAINING_DEVICE is cuda in tests/gpu/check.py.
torch.set_default_device(os.environ.get("TRAINING_DEVICE", "cpu"))


class World(world.World):
    """Ranks of PyTorch."""

    def begin(self):
        """What a case begins with: the same random numbers in all worlds."""
        torch.manual_seed(SEED)

    def batch(self, *tensors):
        """This rank's part of tensors whose first dimension is the batch."""
        parts = [each.chunk(self.size)[self.rank] for each in tensors]
        return parts[0] if len(parts) == 1 else parts

    def mean(self, function):
        """The mean of ``function(rank)`` over the ranks, as far as this process computes it."""
        return function(self.rank)

    def total(self, function):
        """The same for the sum, of which each rank has one summand."""
        return function(self.rank)

    def distribute(self, model, optimizer, **options):
        """Begin with rank 0's weights, and average gradients; return model and optimizer."""
        raise NotImplementedError

    def average(self, optimizer):
        """Wait until the gradients are averaged, as before clipping."""

    @contextlib.contextmanager
    def averaged(self, optimizer):
        """Where ``optimizer.step()`` finds gradients that `average` has averaged."""
        yield


class OneProcess(world.OfAnySize, World):
    """One process over the whole batch.

    Args:
        rank: 0.
        size: of the worlds that it is compared with; see `mean`.
    """

    one_process = True
    #: A permutation of the samples: the same sums in another order. 0 for none.
    order = 0

    def batch(self, *tensors):
        if self.order:
            generator = torch.Generator(tensors[0].device).manual_seed(self.order)
            order = torch.randperm(len(tensors[0]), generator=generator)
            tensors = [each[order] for each in tensors]
        return tensors[0] if len(tensors) == 1 else tensors

    def mean(self, function):
        return self.total(function) / self.size

    def total(self, function):
        ranks = range(self.size)
        return sum(function(rank) for rank in (reversed(ranks) if self.order else ranks))

    def distribute(self, model, optimizer, **options):
        return model, optimizer


class Horovod(World):
    """Ranks with hvd.DistributedOptimizer."""

    def __init__(self, rank, size):
        import horovod.torch as hvd

        hvd.init()
        if torch.get_default_device().type == "cuda":
            # ranks may share a GPU where NCCL takes them for ranks of different hosts
            os.environ["NCCL_HOSTID"] = str(hvd.rank())
        self.hvd = hvd
        super().__init__(hvd.rank(), hvd.size())

    def close(self):
        self.hvd.shutdown()

    def join(self):
        # what a rank that has joined contributes has to be where the others' tensors are
        on_gpu = torch.get_default_device().type == "cuda"
        return self.hvd.join(torch.cuda.current_device() if on_gpu else -1)

    def distribute(self, model, optimizer, **options):
        if self.rank:
            with torch.no_grad():
                for each in model.parameters():
                    each.mul_(2)
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        options = {"named_parameters": model.named_parameters(), **options}
        optimizer = self.hvd.DistributedOptimizer(optimizer, **options)
        self.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return model, optimizer

    def average(self, optimizer):
        optimizer.synchronize()

    def averaged(self, optimizer):
        return optimizer.skip_synchronize()


class Ddp(World):
    """Ranks with torch.nn.parallel.DistributedDataParallel."""

    def __init__(self, rank, size):
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
        super().__init__(rank, size)

    def close(self):
        torch.distributed.destroy_process_group()

    def distribute(self, model, optimizer, **options):
        # for parameters that only some ranks use
        ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        return ddp, optimizer
