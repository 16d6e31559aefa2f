"""A worker of an elastic job with process sets, which adds up on each of them until it is told
to stop."""

import os
import pathlib
import time

import horovod.torch as hvd
import torch

given = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])]
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
hvd.init(process_sets=given)
sets = [*given, hvd.add_process_set([0, 3])]
models = [torch.nn.Linear(1, 1) for _ in given]
optimizers = [
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), process_set=each, groups=1)
    for model, each in zip(models, given)
]
state = hvd.elastic.TorchState(step=0)


def of_set(process_set: hvd.ProcessSet) -> str:
    """The sum of what its ranks add up; what it says where its ranks are not there."""
    if process_set.ranks[-1] < hvd.size() and hvd.rank() not in process_set.ranks:
        return "-"
    try:
        total = hvd.allreduce(
            torch.tensor([10.0 ** hvd.rank()]), op=hvd.Sum, process_set=process_set, name="of set"
        )
    except (ValueError, RuntimeError) as error:
        if "Process set provided does not exist" in str(error):
            return "refused"
        raise
    return str(int(total))


def step(model, optimizer, process_set) -> str:
    """The gradient that a step took, of 2 to the rank on each rank."""
    if process_set.ranks[-1] >= hvd.size():
        return "-"
    model.weight.data.fill_(0.0)
    optimizer.zero_grad()
    model(torch.tensor([[2.0 ** hvd.rank()]])).backward()
    optimizer.step()
    return f"{-model.weight.item():g}"


def results() -> list:
    return [*map(of_set, sets), *map(step, models, optimizers, given)]


@hvd.elastic.run
def train(state):
    text = " ".join(results())
    print(f"rank {hvd.rank()} of {hvd.size()} at step {state.step}: {text}\n", end="", flush=True)
    stop = False
    while not stop:
        time.sleep(0.05)
        again = results()
        assert again == text.split(), again
        state.step += 1
        state.commit()
        stop = hvd.broadcast_object(pathlib.Path("STOP").exists(), name="stop")


train(state)
print(f"rank {hvd.rank()} stopped at step {state.step}\n", end="", flush=True)
