"""``train.py`` with PyTorch's DistributedDataParallel in place of Horovod, step by step."""

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

    # 1. Initialise: from here on this process is one rank of dist.get_world_size().  It reads
    #    MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which ./hvd launch --torch sets.
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    # 2. Pin the GPU: one for each rank of a node.  Where the launcher shows each rank its own
    #    GPU alone, that one is number 0.
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
        # A plain fork would copy the state of MPI, of its network and of CUDA, none of which
        # survives that.
        multiprocessing_context="forkserver" if args.workers else None,
        persistent_workers=bool(args.workers),
    )
    if len(loader) == 0:
        raise SystemExit("--samples: that is less than a batch for each rank")
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, args.hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(args.hidden, CLASSES),
    ).to(device)

    # 3. Scale the learning rate, as a step now takes the batches of all ranks.
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
            group["lr"] = args.lr * size  # it may be one of another number of ranks
    dist.barrier()  # rank 0 must not write the next checkpoint before all have read this one

    # The model is what is wrapped, not the optimizer: it averages the gradients over the ranks
    # while they are computed.
    ddp = DistributedDataParallel(model)

    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss, samples = train(ddp, optimizer, loader, device)
        # Every rank takes part in a reduction; one of them prints what came of it.
        dist.all_reduce(loss)  # their sum: Gloo has no average
        loss = loss.item() / size
        rate = samples * size / (time.perf_counter() - begin)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.6f}, {rate:.0f} samples/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.  It has those of the
            #    model itself, as train.py's does: either resumes from the other's.
            save(args.checkpoint, epoch, model, optimizer)
    dist.destroy_process_group()


def train(model, optimizer, loader, device):
    """One epoch; this rank's mean loss, as a tensor, and its number of samples."""
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
    """Write a checkpoint such that a job that is killed leaves the old one or the new one."""
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5, help="in all, with those of a checkpoint")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=128, help="units of the hidden layer")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="samples of the data set")
    parser.add_argument("--workers", type=int, default=1, help="processes per rank that load data")
    parser.add_argument("--seed", type=int, default=1, help="of the model's first weights")
    parser.add_argument(
        "--checkpoint", default="checkpoint.pt", help="written each epoch; resumed where there"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
