"""Adasum by its formula: https://arxiv.org/abs/2006.02924"""

import torch
from cases_torch import STEPS, loss_of, network, numbers, samples, sgd, train


def weights(model):
    return {name: numbers(value) for name, value in model.state_dict().items()}


def adasum(first, second):
    dot = (first * second).sum()
    return (1 - dot / (2 * (first * first).sum())) * first + (
        1 - dot / (2 * (second * second).sum())
    ) * second


def adasum_of(parts):
    """As Horovod pairs ranks: those that are next to each other first."""
    while len(parts) > 1:
        parts = [adasum(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def of_steps(world):
    world.begin()
    model = network()
    if not world.one_process:
        options = {"op": world.hvd.Adasum}
        model, optimizer = world.distribute(model, sgd(model, momentum=0), **options)
        train(world, model, optimizer)
        return weights(model)
    for step in range(STEPS):
        x, y = samples(step)
        parts = []
        for rank in range(world.size):
            model.zero_grad()
            loss_of(model, x.chunk(world.size)[rank], y.chunk(world.size)[rank]).backward()
            parts.append([-0.1 * p.grad for p in model.parameters()])
        with torch.no_grad():
            for p, *deltas in zip(model.parameters(), *parts):
                p.add_(adasum_of(deltas))
    return weights(model)


def of_tensors(world):
    parts = [torch.randn(7, generator=torch.Generator().manual_seed(r)).double() for r in range(4)]
    if world.one_process:
        return {"sum": numbers(adasum_of(parts[: world.size]))}
    return {"sum": numbers(world.hvd.allreduce(parts[world.rank], op=world.hvd.Adasum))}
