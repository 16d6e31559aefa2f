"""Training with PyTorch and Horovod on the workers of Ray."""

import argparse

import horovod.torch as hvd
import ray
import torch
from horovod.ray import RayExecutor


def main():
    args = parse()
    # A cluster that runs, or one of this machine for the time of this program.
    if args.address:
        ray.init(args.address)
    else:
        ray.init(num_cpus=args.num_workers)
    # Each worker is a rank.  If the machines have several networks, name the one to use:
    # create_settings(nics={"eth0"}).
    settings = RayExecutor.create_settings()
    executor = RayExecutor(settings, num_workers=args.num_workers, use_gpu=args.use_gpu)
    executor.start()
    results = executor.run(train, args=[args.epochs, args.batch_size, args.lr])
    executor.shutdown()
    ray.shutdown()

    # What the ranks have returned, in order.
    losses, _ = results[0]
    for epoch, loss in enumerate(losses, 1):
        print(f"epoch {epoch}: loss {loss:.6f}")
    if len({total for _, total in results}) > 1:
        raise SystemExit("the ranks have different weights")
    if not losses[-1] <= losses[0]:
        raise SystemExit(f"the loss has not fallen: {losses}")
    print(f"ranks with the same weights: {len(results)}")


def train(epochs, batch_size, lr):
    """Train on one worker; return the losses of the epochs, and the sum of the weights.

    It is a script of Horovod like any other, in a function: pytorch_mnist.py explains its steps.
    """
    hvd.init()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # Ray shows one GPU
    images, labels = mnist_like(2048)
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
    steps = 2048 // hvd.size() // batch_size  # of every rank the same number

    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for indices in torch.randperm(len(labels)).split(batch_size)[:steps]:
            optimizer.zero_grad()
            output = model(images[indices].to(device))
            loss = torch.nn.functional.cross_entropy(output, labels[indices].to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        losses.append(hvd.allreduce(total / steps, name="loss", op=hvd.Average).item())
    weights = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    hvd.shutdown()
    return losses, weights


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    noise = torch.randn(samples, 1, 28, 28, generator=generator)
    return patterns[labels] + 4 * noise, labels


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--num-workers", type=int, default=2, help="ranks")
    parser.add_argument("--address", help="of a Ray cluster that runs, or 'auto'")
    parser.add_argument("--use-gpu", action="store_true", help="give each worker a GPU")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
