"""Images per second that PyTorch and Horovod train, without any data to read."""

import argparse
import statistics
import timeit

import horovod.torch as hvd
import torch

#: ResNets by their numbers of blocks; torchvision has many more models.
RESNETS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


def main():
    args = parse()
    hvd.init()
    cuda = torch.cuda.is_available() and not args.no_cuda
    device, kind = torch.device("cuda" if cuda else "cpu"), "GPU" if cuda else "CPU"
    if cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        torch.backends.cudnn.benchmark = True  # all images have one size

    model = network(args.model).to(device)
    images = torch.randn(args.batch_size, 3, 224, 224, device=device)
    labels = torch.randint(1000, (args.batch_size,), device=device)
    # Averages need the learning rate of the whole batch.  Adasum needs that of one rank; on GPUs,
    # that of one node, because NCCL sums within each node first.
    scale = hvd.size()
    if args.use_adasum:
        scale = hvd.local_size() if cuda and hvd.nccl_built() else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * scale)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def iteration():
        for _ in range(args.num_batches_per_iter):
            step()
        if cuda:
            torch.cuda.synchronize()  # the GPU is behind the program

    def rates():
        """Yield the images per second of each iteration."""
        for _ in range(args.num_warmup_batches):
            step()
        if cuda:
            torch.cuda.synchronize()
        for _ in range(args.num_iters):
            seconds = timeit.timeit(iteration, number=1)
            yield args.batch_size * args.num_batches_per_iter / seconds

    def log(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    log(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of {kind}s: {hvd.size()}")
    # What scaling is compared with: rank 0 trains alone, and the others wait for it where they
    # broadcast.  Any operation of Horovod in here would wait for them.
    if hvd.size() > 1 and hvd.rank() == 0:
        alone = list(rates())
        log(f"Img/sec of one {kind} alone: {spread(alone)}")

    # From here on, all ranks train: with the same weights, and gradients that are averaged.
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    found = []
    for rate in rates():
        log(f"Iter #{len(found)}: {rate:.1f} img/sec per {kind}")
        found.append(rate)
    log(f"Img/sec per {kind}: {spread(found)}")
    log(f"Total img/sec on {hvd.size()} {kind}(s): {spread(found, hvd.size())}")
    if hvd.size() > 1 and hvd.rank() == 0:
        scaling = statistics.mean(found) / statistics.mean(alone)
        log(f"Scaling: {scaling:.1%} of {hvd.size()} times one {kind} alone")

    # Ranks that part have not been trained together, however fast they were.
    total = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    if len(set(hvd.allgather_object(total))) > 1:
        raise SystemExit("the ranks have different weights")
    log(f"ranks with the same weights: {hvd.size()}")
    hvd.shutdown()


def spread(rates, factor=1):
    """Return the mean of the iterations, and 1.96 of their standard deviations."""
    mean, deviation = statistics.mean(rates), statistics.pstdev(rates)
    return f"{factor * mean:.1f} +-{factor * 1.96 * deviation:.1f}"


def network(name):
    """Return a ResNet, or the model that torchvision calls so."""
    if name in RESNETS:
        return resnet(RESNETS[name])
    import torchvision

    return getattr(torchvision.models, name)()


def resnet(numbers):
    """Return a ResNet of bottlenecks, with the stride in the 3 x 3 convolution."""
    layers = [convolution(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, number in enumerate(numbers):
        width = 64 * 2**stage
        for block in range(number):
            layers.append(Bottleneck(channels, width, 2 if stage and not block else 1))
            channels = 4 * width
    pooled = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 1000)]
    return torch.nn.Sequential(*layers, *pooled)


def convolution(channels, out, size, stride=1):
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, out, size, stride, size // 2, bias=False),
        torch.nn.BatchNorm2d(out),
    )


class Bottleneck(torch.nn.Module):
    """A block: 1 x 1, 3 x 3 and 1 x 1 convolutions, beside a short cut."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.path = torch.nn.Sequential(
            convolution(channels, width, 1),
            torch.nn.ReLU(),
            convolution(width, width, 3, stride),
            torch.nn.ReLU(),
            convolution(width, 4 * width, 1),
        )
        self.short = torch.nn.Identity()
        if stride > 1 or channels != 4 * width:
            self.short = convolution(channels, 4 * width, 1, stride)

    def forward(self, x):
        return torch.relu(self.path(x) + self.short(x))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    flag = parser.add_argument
    flag("--fp16-allreduce", action="store_true", help="send gradients in half precision")
    flag("--model", default="resnet50", help=f"{', '.join(RESNETS)}, or a model of torchvision")
    flag("--batch-size", type=int, default=32, help="images per rank and step")
    flag("--num-warmup-batches", type=int, default=10, help="batches that do not count")
    flag("--num-batches-per-iter", type=int, default=10, help="batches of a measurement")
    flag("--num-iters", type=int, default=10, help="measurements")
    flag("--no-cuda", action="store_true", help="train on CPUs, where there are GPUs too")
    flag("--use-adasum", action="store_true", help="combine gradients by Adasum, do not average")
    return parser.parse_args()


if __name__ == "__main__":
    main()
