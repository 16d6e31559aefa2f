"""Scripts that need a GPU, beside those of `cases_torch`: streams, float16, SyncBatchNorm."""

import contextlib

import torch
from cases_torch import (  # noqa: F401 (as a module of cases)
    STEPS,
    case,
    loss_of,
    names,
    network,
    reference,
    rounding,
    run,
    samples,
    sgd,
    snapshot,
    train,
)
from torch import nn
from world import SAMPLES

#: Clock cycles for which a stream is made busy: some milliseconds.
BUSY = 10_000_000
ELEMENTS = 60_000


@contextlib.contextmanager
def side_stream():
    """A stream that does not wait for the default one."""
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
    torch.cuda.synchronize()


@case(ddp=False)
def training_on_a_side_stream(world):
    with side_stream():
        model = network()
        model, optimizer = world.distribute(model, sgd(model))
        return train(world, model, optimizer, after_step=lambda step: torch.cuda._sleep(BUSY))


@case(ddp=False)
def backward_pass_on_a_stream_of_its_own(world):
    """Each layer's gradient is computed on the stream of its forward pass."""
    model = network()
    model, optimizer = world.distribute(model, sgd(model))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        optimizer.zero_grad()
        for stream, layers in zip(streams, (model[:2], model[2:])):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(BUSY)
                x = layers(x)
            torch.cuda.current_stream().wait_stream(stream)
        nn.functional.mse_loss(x, y).backward()
        optimizer.step()
    return model, optimizer


def everywhere(value):
    """As a function of all ranks' inputs whose value is the same on each rank."""
    return lambda x: [value(x)] * len(x)


def parts(x, rank):
    return [each.chunk(len(x))[rank] for each in x]


#: Operations, and what they are for the inputs of all ranks, as outputs on each rank.
OPERATIONS = {
    "average": (lambda hvd, x: hvd.allreduce(x), everywhere(lambda x: sum(x) / len(x))),
    "sum": (lambda hvd, x: hvd.allreduce(x, op=hvd.Sum), everywhere(sum)),
    "sum of integers": (
        lambda hvd, x: hvd.allreduce(x.long(), op=hvd.Sum).double(),
        everywhere(lambda x: sum(each.long() for each in x).double()),
    ),
    "grouped sum": (
        lambda hvd, x: torch.cat(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)),
        everywhere(lambda x: torch.cat([sum(x), 2 * sum(x)])),
    ),
    "allgather": (lambda hvd, x: hvd.allgather(x), everywhere(torch.cat)),
    "grouped allgather": (
        lambda hvd, x: torch.cat(hvd.grouped_allgather([x, 2 * x])),
        everywhere(lambda x: torch.cat([torch.cat(x), 2 * torch.cat(x)])),
    ),
    "broadcast": (lambda hvd, x: hvd.broadcast(x, 0), everywhere(lambda x: x[0])),
    "alltoall": (
        lambda hvd, x: hvd.alltoall(x),
        lambda x: [torch.cat(parts(x, rank)) for rank in range(len(x))],
    ),
    "reducescatter": (
        lambda hvd, x: hvd.reducescatter(x, op=hvd.Sum),
        lambda x: [sum(parts(x, rank)) for rank in range(len(x))],
    ),
    "average that is scattered": (
        lambda hvd, x: hvd.reducescatter(x),
        lambda x: [sum(parts(x, rank)) / len(x) for rank in range(len(x))],
    ),
    "grouped reducescatter": (
        lambda hvd, x: torch.cat(hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum)),
        lambda x: [
            torch.cat([sum(parts(x, rank)), 2 * sum(parts(x, rank))]) for rank in range(len(x))
        ],
    ),
}


def digest(out):
    return torch.stack([out.sum(), (out * torch.arange(len(out)).double()).sum(), out.max()])


def inputs(world, turn):
    """Of all ranks, made after a while."""
    ranks = range(world.size) if world.one_process else [world.rank]
    x = [torch.zeros(ELEMENTS, dtype=torch.float64) for _ in ranks]
    torch.cuda._sleep(BUSY)
    for rank, each in zip(ranks, x):
        each += torch.arange(ELEMENTS) % 97 + 10 * rank + 1000 * turn
    return x


def operate(world, name, turn):
    collective, one_process = OPERATIONS[name]
    x = inputs(world, turn)
    return one_process(x) if world.one_process else [collective(world.hvd, x[0])]


def of_all_ranks(world, digests):
    """The same on each rank: what the first and the last one have."""
    torch.cuda.synchronize()
    if world.one_process:
        first, last = ({k: v[place] for k, v in digests.items()} for place in (0, -1))
    else:
        every = {k: world.hvd.allgather(v[0][None]) for k, v in digests.items()}
        first, last = ({k: v[place] for k, v in every.items()} for place in (0, -1))
    return {**first, **{f"{name}, last rank": value for name, value in last.items()}}


@case(ddp=False)
def operations_on_a_side_stream(world):
    """On a stream that computes the input late, and reads the output at once."""
    digests = {}
    for name in OPERATIONS:
        with side_stream():
            for turn in range(3):
                digests[f"{name} {turn}"] = [digest(each) for each in operate(world, name, turn)]
    return of_all_ranks(world, digests)


@case(ddp=False)
def outputs_that_are_freed_before_they_are_read(world):
    """The next operation is on another stream, and takes the memory of the last one's output."""
    digests = {}
    for name in OPERATIONS:
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        for turn in range(4):
            with torch.cuda.stream(streams[turn % 2]):
                outputs = operate(world, name, turn)
                torch.cuda._sleep(5 * BUSY)
                digests[f"{name} {turn}"] = [digest(each) for each in outputs]
                del outputs
    return of_all_ranks(world, digests)


@case(ddp=False)
def waiting_on_another_stream(world):
    """An operation is enqueued on one stream, and its output used on another."""
    digests = {}
    for turn in range(3):
        with side_stream():
            x = inputs(world, turn)
            if not world.one_process:
                handle = world.hvd.allreduce_async(x[0], op=world.hvd.Sum)
        with side_stream():
            out = sum(x) if world.one_process else world.hvd.synchronize(handle)
            digests[f"sum {turn}"] = [digest(out)]
    return of_all_ranks(world, digests)


@case(ddp=False)
def polled(world):
    """What poll() says is done is done."""
    digests = {}
    for turn in range(3):
        x = inputs(world, turn)
        if world.one_process:
            digests[f"sum {turn}"] = [digest(sum(x))]
            continue
        handle = world.hvd.allreduce_async_(x[0], op=world.hvd.Sum)
        while not world.hvd.poll(handle):
            pass
        with torch.cuda.stream(torch.cuda.Stream()):
            digests[f"sum {turn}"] = [digest(x[0])]
            torch.cuda.synchronize()
        world.hvd.synchronize(handle)
    return of_all_ranks(world, digests)


@case(ddp=False, rounding=torch.float16)
def float16_with_loss_scaling(world):
    model = network(dtype=torch.float32)
    model, optimizer = world.distribute(model, sgd(model))
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=2)
    for step in range(STEPS):
        x, y = world.batch(*samples(step, dtype=torch.float32))
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(model, x, y)
        scaler.scale(loss * (float("inf") if step == 1 and world.rank == 0 else 1)).backward()
        world.average(optimizer)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with world.averaged(optimizer):
            scaler.step(optimizer)
        scaler.update()
    return {**snapshot(model, optimizer), "scale": scaler.get_scale()}


def with_batch_norm(world, samples_of, channels_last=False, **options):
    """Train with a normalization over the batches of all ranks.

    Args:
        samples_of: how many samples each rank has, by the number of ranks.
    """
    kind = nn.BatchNorm2d if world.one_process else world.hvd.SyncBatchNorm
    model = nn.Sequential(nn.Conv2d(3, 4, 3), kind(4, **options), nn.ReLU(), nn.Conv2d(4, 2, 3))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.double().to(memory_format=layout)
    model, optimizer = world.distribute(model, sgd(model))
    for step in range(STEPS):
        torch.manual_seed(step)
        x = torch.randn(SAMPLES, 3, 6, 6, dtype=torch.float64).to(memory_format=layout)
        if not world.one_process:
            x = x.split(samples_of(world.size))[world.rank]
        optimizer.zero_grad()
        # a sum, as ranks have different numbers of samples
        loss = model(x).square().sum() / SAMPLES
        (loss * (1 if world.one_process else world.size)).backward()
        optimizer.step()
    return model, optimizer


def even(size):
    return [SAMPLES // size] * size


def uneven(size):
    return [1] * (size - 1) + [SAMPLES - size + 1]


def none_but_the_last(size):
    return [0] * (size - 1) + [SAMPLES]


#: How many samples each rank has, and options.
BATCH_NORMS = {
    "of even batches": (even, {}),
    "of uneven batches": (uneven, {}),
    "where ranks have no samples": (none_but_the_last, {}),
    "of channels last": (even, {"channels_last": True}),
    "without weights": (even, {"affine": False}),
    "with a mean of all steps": (even, {"momentum": None}),
    "without statistics": (even, {"track_running_stats": False}),
}


def add_batch_norms():
    for name, (samples_of, options) in BATCH_NORMS.items():

        def train_with(world, samples_of=samples_of, options=options):
            return with_batch_norm(world, samples_of, **options)

        train_with.__name__ = f"SyncBatchNorm {name}"
        case(train_with, ddp=False)


add_batch_norms()
