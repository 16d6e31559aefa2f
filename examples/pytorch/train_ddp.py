"""``train.py`` with PyTorch's DistributedDataParallel instead of Horovod, step by step."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
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

    # 1. Initialise: from now on, this process is one rank of dist.get_world_size().  This reads
    #    MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which ./hvd launch --torch sets.
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        device = torch.device("cuda")

    # Each rank reads its own part of the data.
    dataset = Synthetic(args.samples)
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank)
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

    # 3. Scale the learning rate, because a step now uses the batches of all ranks.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * size, momentum=0.9)

    # 4. Every rank reads the checkpoint: DistributedDataParallel broadcasts the model's weights
    #    from rank 0, but not the optimizer's state.
    done = 0  # epochs
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        for group in optimizer.param_groups:
            group["lr"] = args.lr * size  # the checkpoint's is for its number of ranks
    dist.barrier()  # rank 0 must not write the next checkpoint before all have read this one

    # Wrap the model, not the optimizer: it averages the gradients over the ranks while they are
    # computed.
    ddp = DistributedDataParallel(model)

    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss, samples = train(ddp, optimizer, loader, device)
        # Every rank must take part in a reduction; one of them prints the result.
        dist.all_reduce(loss)  # sum: Gloo cannot average
        loss = loss.item() / size
        rate = samples * size / (time.perf_counter() - begin)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.6f}, {rate:.0f} samples/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.  Save the inner model, as
            #    train.py does, so that either script resumes from the other's checkpoint.
            save(args.checkpoint, epoch, model, optimizer)
    dist.destroy_process_group()


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
