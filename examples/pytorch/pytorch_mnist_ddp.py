"""pytorch_mnist.py with PyTorch's DistributedDataParallel in place of Horovod, to compare.

``./hvd launch ... --torch`` and ``torchrun`` start it on many ranks, as docs/ddp.md says.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

#: One rank, where nothing has started several.
ALONE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def main():
    args = parse()

    # 1. Initialise.  The launcher says which rank this process is, by RANK, WORLD_SIZE,
    #    LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    device = torch.device("cpu")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        device = torch.device("cuda")

    # Each rank reads its own part of the data.
    images, labels = mnist_like(args.samples + args.test_samples)
    dataset = TensorDataset(images[: args.samples], labels[: args.samples])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        drop_last=True,
        pin_memory=cuda,
        num_workers=args.workers,
        # A plain fork would copy the state of the network and CUDA; neither survives that.
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

    # 3. Scale the learning rate, because a step now uses the batches of all ranks.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * size, momentum=0.9)

    # 4. Every rank reads the checkpoint: DistributedDataParallel broadcasts the model's weights
    #    from rank 0, but not the optimizer's state.
    done = 0  # epochs
    if args.checkpoint and os.path.exists(args.checkpoint):
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

    losses = []
    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss, trained = train(ddp, optimizer, loader, device)
        # Every rank must take part in a reduction; one of them prints the result.
        dist.all_reduce(loss)  # sum: Gloo cannot average
        losses.append(loss.item() / size)
        rate = trained * size / (time.perf_counter() - begin)
        if rank == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.6f}, {rate:.0f} images/s", flush=True)
            # 5. Checkpoint on rank 0: the others have the same weights.  Save the inner model, as
            #    pytorch_mnist.py does, so that either script resumes from the other's checkpoint.
            if args.checkpoint:
                save(args.checkpoint, epoch, model, optimizer)

    # Every rank validates its part, too.
    part = slice(args.samples + rank, None, size)
    hits = count_hits(model, images[part].to(device), labels[part].to(device))
    dist.all_reduce(hits)
    check(model, losses)
    if rank == 0:
        accuracy = hits.item() / args.test_samples
        print(f"accuracy {accuracy:.1%}, ranks with the same weights: {size}", flush=True)
    dist.destroy_process_group()


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
    totals = [None] * dist.get_world_size()
    dist.all_gather_object(totals, total)
    if len(set(totals)) > 1:
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
