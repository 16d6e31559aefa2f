"""Distributed training with PyTorch and Horovod; ``python train.py --help``."""

import argparse
import os
import time

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

FEATURES, CLASSES = 32, 10


class Synthetic(Dataset):
    """Points around one centre per class; the same on every rank."""

    def __init__(self, samples):
        generator = torch.Generator().manual_seed(1)
        centres = torch.randn(CLASSES, FEATURES, generator=generator)
        self.labels = torch.randint(CLASSES, (samples,), generator=generator)
        noise = torch.randn(samples, FEATURES, generator=generator)
        self.points = centres[self.labels] + 2 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


def main():
    args = parse()

    # 1. Initialise: from now on, this process is one rank of hvd.size().
    hvd.init()
    torch.manual_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        device = torch.device("cuda")

    # Each rank reads its own part of the data.
    dataset = Synthetic(args.samples)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        drop_last=True,
        pin_memory=device.type == "cuda",
        num_workers=args.workers,
        # A plain fork would copy the state of MPI, the network and CUDA; none survives that.
        multiprocessing_context="forkserver" if args.workers else None,
        persistent_workers=bool(args.workers),
    )
    if len(loader) == 0:
        raise SystemExit("--samples: less than one batch per rank")
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, args.hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(args.hidden, CLASSES),
    ).to(device)

    # 3. Scale the learning rate, because a step now uses hvd.size() batches, and wrap the
    #    optimizer, which averages the gradients over the ranks while they are computed.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    done = 0  # epochs
    if hvd.rank() == 0 and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()  # the checkpoint's is for its number of ranks
    done = hvd.broadcast_object(done, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss, samples = train(model, optimizer, loader, device)
        # Every rank must take part in a reduction; one of them prints the result.
        loss = hvd.allreduce(loss, name="loss", op=hvd.Average).item()
        rate = samples * hvd.size() / (time.perf_counter() - begin)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.6f}, {rate:.0f} samples/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.
            save(args.checkpoint, epoch, model, optimizer)
    hvd.shutdown()


def train(model, optimizer, loader, device):
    """Train for one epoch; return this rank's mean loss, a tensor, and its number of samples."""
    model.train()
    total, samples = torch.zeros((), device=device), 0
    for points, labels in loader:
        points = points.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(labels)
        samples += len(labels)
    return total / samples, samples


def save(path, epoch, model, optimizer):
    """Write a checkpoint; a job killed meanwhile leaves the old one or the new one."""
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5, help="total, with the checkpoint's")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=128, help="units of the hidden layer")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    parser.add_argument("--workers", type=int, default=1, help="data loader processes per rank")
    parser.add_argument("--seed", type=int, default=1, help="for the initial weights")
    parser.add_argument(
        "--checkpoint", default="checkpoint.pt", help="written each epoch; resumed if it exists"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
