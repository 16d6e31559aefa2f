"""Distributed training with PyTorch and Horovod; ``python pytorch_mnist.py --help``."""

import argparse
import os
import time

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


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

    # Each rank reads its own part of the data, and all take the same number of batches of one
    # size: a rank with one batch more would wait for the others for ever, and a smaller batch
    # would count as much as the others.
    images, labels = mnist_like(args.samples + args.test_samples)
    dataset = TensorDataset(images[: args.samples], labels[: args.samples])
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
        torch.nn.Conv2d(1, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    ).to(device)

    # 3. Scale the learning rate, because a step now uses hvd.size() batches, and wrap the
    #    optimizer, which averages the gradients over the ranks while they are computed.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # 4. Broadcast from rank 0, the only one to read the checkpoint, so that all ranks start equal.
    done = 0  # epochs
    if args.checkpoint and hvd.rank() == 0 and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()  # the checkpoint's is for its number of ranks
    done = hvd.broadcast_object(done, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    losses = []
    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss, trained = train(model, optimizer, loader, device)
        # Every rank must take part in a reduction, and one of them prints the result: called on
        # rank 0 only, hvd.allreduce() would wait for the others for ever.
        losses.append(hvd.allreduce(loss, name="loss", op=hvd.Average).item())
        rate = trained * hvd.size() / (time.perf_counter() - begin)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.6f}, {rate:.0f} images/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.
            if args.checkpoint:
                save(args.checkpoint, epoch, model, optimizer)

    # Every rank validates its part, too.
    part = slice(args.samples + hvd.rank(), None, hvd.size())
    hits = count_hits(model, images[part].to(device), labels[part].to(device))
    accuracy = hvd.allreduce(hits, name="hits", op=hvd.Sum).item() / args.test_samples
    check(model, losses)
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%}, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    noise = torch.randn(samples, 1, 28, 28, generator=generator)
    return patterns[labels] + 4 * noise, labels


def train(model, optimizer, loader, device):
    """Train for one epoch; return this rank's mean loss, a tensor, and its number of images."""
    model.train()
    total, trained = torch.zeros((), device=device), 0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(labels)
        trained += len(labels)
    return total / trained, trained


@torch.no_grad()
def count_hits(model, images, labels):
    """Return how many images get their label, as a tensor."""
    model.eval()
    return (model(images).argmax(1) == labels).sum()


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    if len(set(hvd.allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    if losses and not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")


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
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="images to train with")
    parser.add_argument("--test-samples", type=int, default=1024, help="images to validate with")
    parser.add_argument("--workers", type=int, default=1, help="data loader processes per rank")
    parser.add_argument("--seed", type=int, default=1, help="for the initial weights")
    parser.add_argument("--checkpoint", help="file, written each epoch; resumed if it exists")
    return parser.parse_args()


if __name__ == "__main__":
    main()
