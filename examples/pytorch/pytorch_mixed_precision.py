"""Mixed precision, clipped gradients, accumulated gradients and warm-up, PyTorch and Horovod."""

import argparse
import itertools

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    args = parse()
    hvd.init()
    torch.manual_seed(1)
    device, half = torch.device("cpu"), torch.bfloat16
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        device, half = torch.device("cuda"), torch.float16

    dataset = mnist_like(args.samples)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    passes = args.batches_per_allreduce
    steps = len(loader) // passes
    if steps == 0:
        raise SystemExit("--samples: less than --batches-per-allreduce batches per rank")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    ).to(device)

    # A step uses this many batches, so it takes that many times the learning rate of one ...
    batches = passes * hvd.size()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * batches, momentum=0.9)
    # ... and Horovod has to know how many passes accumulate gradients here, before the last of
    # them averages over the ranks.
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=passes
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    # Warm-up: so high a rate is reached gradually, in the first epoch.
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / batches, total_iters=steps)
    scaler = torch.amp.GradScaler(device.type)

    losses = []
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        # Every rank takes the same number of steps, each of as many passes: what is left is not
        # used, or it would count in the next epoch's first step.
        for number, (images, labels) in enumerate(itertools.islice(loader, steps * passes), 1):
            with torch.autocast(device.type, dtype=half):
                output = model(images.to(device))
                loss = torch.nn.functional.cross_entropy(output, labels.to(device))
            # Passes are summed, as by PyTorch alone: divide, for their mean.
            scaler.scale(loss / passes).backward()
            total += loss.detach()
            if number % passes:
                continue
            # The last backward() has ended with averaged gradients.  So each rank clips by the
            # norm of the whole batch, and all of them leave out a step that overflows on one.
            # Horovod as released needs optimizer.synchronize() here, and scaler.step() inside of
            # "with optimizer.skip_synchronize():"; that works here, too.
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            warm_up.step()
        loss = hvd.allreduce(total / (steps * passes), name="loss", op=hvd.Average)
        losses.append(loss.item())
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.6f}", flush=True)

    check(model, losses)
    if hvd.rank() == 0:
        print(f"{steps} steps an epoch, ranks with the same weights: {hvd.size()}", flush=True)
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    noise = torch.randn(samples, 1, 28, 28, generator=generator)
    return TensorDataset(patterns[labels] + 4 * noise, labels)


def check(model, losses):
    """Fail, on every rank, if the ranks differ in weights or the loss has not fallen."""
    total = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    if len(set(hvd.allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    if not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and pass")
    parser.add_argument(
        "--batches-per-allreduce", type=int, default=2, help="backward passes of a step"
    )
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one batch")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    return parser.parse_args()


if __name__ == "__main__":
    main()
