"""Training with PyTorch and Horovod that goes on when workers are lost or added.

``horovodrun --gloo ... --host-discovery-script ./discover_hosts.sh`` starts it.
"""

import argparse
import os

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    args = parse()

    # 1. Initialise.  Rank and number of ranks change with the workers.
    hvd.init()
    torch.manual_seed(args.seed)

    # 2. Pin the GPU: one per rank of a node.  If the launcher shows each rank only one GPU, it is
    #    number 0.
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        device = torch.device("cuda")

    # The sampler distributes the rest of an epoch among the current workers.
    dataset = mnist_like(args.samples)
    sampler = hvd.elastic.ElasticSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    ).to(device)

    # 3. Wrap the optimizer, and scale the learning rate whenever workers have changed.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # 4. The state holds everything that must outlive a worker.  When workers have changed, rank 0,
    #    one of the oldest workers, broadcasts its state to all.
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0
    )

    @hvd.elastic.run
    def train(state):
        """Train; called again, with the committed state, when workers were lost or added."""
        sampler.reset()  # Horovod does not redistribute if hosts were only lost
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()
        print(f"rank {hvd.rank()} of {hvd.size()} at step {state.step}: {describe(model)}")
        losses = []
        while state.epoch < args.epochs:
            for number, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                output = model(images.to(device))
                loss = torch.nn.functional.cross_entropy(output, labels.to(device))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                sampler.record_batch(number, args.batch_size)
                state.step += 1
                if state.step % args.commit == 0:
                    # Every rank takes part in the reduction, so either all stop or none.
                    stop = float(os.path.exists(args.stop))
                    sums = torch.tensor([sum(losses) / len(losses), stop])
                    loss, stop = hvd.allreduce(sums, name="loss", op=hvd.Average).tolist()
                    losses.clear()
                    if hvd.rank() == 0:
                        print(f"step {state.step}: loss {loss:.6f}, {describe(model)}")
                    # 5. Commit: each worker keeps a copy in memory, and goes back to it when
                    #    another is lost.  Added workers join here.
                    state.commit()
                    if stop:
                        return check(model)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} ended at step {state.step}: {describe(model)}")
            state.commit()
        return check(model)

    train(state)
    if hvd.rank() == 0:
        # For later jobs; under another name first, so that a killed job leaves a complete file.
        torch.save(model.state_dict(), args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)
        print(f"trained to step {state.step}: {describe(model)}")
    hvd.shutdown()


def mnist_like(samples):
    """Ten patterns of 28 x 28 pixels, in much noise, and their numbers: the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    noise = torch.randn(samples, 1, 28, 28, generator=generator)
    return TensorDataset(patterns[labels] + 4 * noise, labels)


def describe(model):
    """Return a number that is the same for two models only if their weights are."""
    total = sum(parameter.detach().double().norm().item() for parameter in model.parameters())
    return f"weights {total:.9f}"


def check(model):
    """Fail, on every rank, if the ranks differ in weights."""
    # with a name: those that Horovod counts differ between old workers and new ones
    if len(set(hvd.allgather_object(describe(model), name="weights"))) > 1:
        raise SystemExit("the ranks have different weights")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank")
    parser.add_argument("--samples", type=int, default=8192, help="size of the data set")
    parser.add_argument("--commit", type=int, default=10, help="steps between two commits")
    parser.add_argument("--seed", type=int, default=1, help="for the initial weights")
    parser.add_argument("--stop", default="STOP", help="the job ends when this file exists")
    parser.add_argument("--checkpoint", default="model.pt", help="written at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
