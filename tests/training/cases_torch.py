"""PyTorch scripts that must train as one process over the whole batch does.

Each case is a function of a `worlds.World` that trains and returns what it ended with: a model
and its optimizer, or values by name.  `CASES` has all of them by name.
"""

import copy
import inspect
import math

import torch
from torch import nn
from world import SAMPLES, STEPS

CASES = {}


def case(function=None, *, ddp=True, rounding=torch.float64):
    """Enter a case into the table.

    Args:
        ddp: whether DistributedDataParallel is to have the same result.
        rounding: the coarsest type that it computes with.
    """

    def enter(function):
        function.ddp, function.rounding = ddp, rounding
        CASES[function.__name__] = function
        return function

    return enter(function) if function else enter


def names(world, ddp=False):
    """The names of all cases, or of those that DistributedDataParallel has as well."""
    return [name for name, function in CASES.items() if function.ddp or not ddp]


def run(world, case):
    """Run a case, and return what it ended with as lists of numbers by name."""
    world.begin()
    made = CASES[case](world)
    if isinstance(made, tuple):
        made = snapshot(*made)
    return {name: numbers(value) for name, value in made.items()}


def rounding(world, case):
    """How far 1 is from the next number of the coarsest type that a case computes with."""
    return torch.finfo(CASES[case].rounding).eps


def reference(world, case, order):
    """Run a case in one process that adds up the samples in another order, which 0 leaves."""
    world.order = order
    return run(world, case)


def numbers(value):
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.to_dense() if value.is_sparse else value
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return value.double().flatten().tolist()
    return [float(value)]


def snapshot(model, optimizer):
    """Weights and buffers of a model, and the state and the rates of its optimizer."""
    model = getattr(model, "module", model)
    found = {f"model {name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        flat = state.items() if isinstance(state, dict) else [("", state)]
        for name, value in flat:
            for place, each in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(each, (torch.Tensor, float, int)):
                    found[f"state {index} {name} {place}"] = each
    for index, group in enumerate(optimizer.param_groups):
        found[f"rate {index}"] = group["lr"]
    return found


def network(*sizes, dtype=torch.float64):
    """A perceptron; by default of 5 inputs and 3 outputs."""
    sizes = sizes or (5, 8, 3)
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after, dtype=dtype), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def random_numbers(step):
    return torch.Generator(torch.get_default_device()).manual_seed(step)


def samples(step, inputs=5, outputs=3, dtype=torch.float64):
    generator = random_numbers(step)
    shapes = (SAMPLES, inputs), (SAMPLES, outputs)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
    ]


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def train(
    world,
    model,
    optimizer,
    steps=STEPS,
    before_step=None,
    after_step=None,
    first=0,
    loss=None,
    after_backward=None,
):
    """The plain loop.

    Args:
        loss: that of a step, if not that of its batch.
        before_step: changes gradients that are averaged; ``after_backward``, as they are then.
    """
    loss = loss or (lambda step: loss_of(model, *world.batch(*samples(step))))
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss(step).backward()
        if after_backward:
            after_backward(model)
        if before_step:
            world.average(optimizer)
            before_step(model, optimizer)
            with world.averaged(optimizer):
                optimizer.step()
        else:
            optimizer.step()
        if after_step:
            after_step(step)
    return model, optimizer


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def begin(world, model=None, **options):
    """A network with SGD, unless there is another ``model``; ``options`` are Horovod's."""
    model = network() if model is None else model
    return world.distribute(model, sgd(model), **options)


# Every optimizer of torch.optim


def options_of(kind):
    """Options of an optimizer, as far as its constructor has them."""
    wanted = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    known = inspect.signature(kind.__init__).parameters
    return {name: value for name, value in wanted.items() if name in known}


def add_optimizers():
    # these need a closure, and sparse gradients: below
    special = {torch.optim.LBFGS, torch.optim.SparseAdam}
    kinds = [
        kind
        for kind in vars(torch.optim).values()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind not in {torch.optim.Optimizer, *special}
    ]
    for kind in kinds:

        def train_with(world, kind=kind):
            return train(world, *begin_with(world, kind))

        def broadcast(world, kind=kind):
            """No step, and neither weights nor state that were not there before."""
            return begin_with(world, kind)

        train_with.__name__ = f"optimizer {kind.__name__}"
        broadcast.__name__ = f"state broadcast of {kind.__name__}"
        case(train_with)
        case(broadcast, ddp=False)


def begin_with(world, kind):
    model = network()
    if kind.__name__ == "Muon":
        # for matrices only
        for each in model:
            if isinstance(each, nn.Linear):
                each.bias = None
    return world.distribute(model, kind(model.parameters(), **options_of(kind)))


add_optimizers()


class Required(torch.optim.Optimizer):
    """An optimizer whose constructor has required arguments, and keeps more than its defaults."""

    def __init__(self, params, rate, *, factors):
        super().__init__(params, {"lr": rate})
        self.factors = factors

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for factor, p in zip(self.factors, group["params"]):
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] * factor)
        return loss


@case
def required_constructor_arguments(world):
    model = network()
    optimizer = Required(model.parameters(), 0.1, factors=[1, 2, 3, 4])
    return train(world, *world.distribute(model, optimizer))


# Steps with closures


def train_with_closure(world, model, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        return loss

    losses = {}
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        losses[f"loss {step}"] = optimizer.step(closure)
    return {**snapshot(model, optimizer), **losses}


@case(ddp=False)
def closure_with_sgd(world):
    return train_with_closure(world, *begin(world))


@case(ddp=False)
def closure_with_adam(world):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return train_with_closure(world, *world.distribute(model, optimizer))


@case(ddp=False)
def lbfgs(world):
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=3)
    return train_with_closure(world, *world.distribute(model, optimizer))


@case(ddp=False)
def lbfgs_with_line_search(world):
    model = network()
    options = {"max_iter": 4, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, **options)
    return train_with_closure(world, *world.distribute(model, optimizer))


@case(ddp=False)
def closure_that_has_no_loss_on_one_rank(world):
    model, optimizer = begin(world)

    def closure():
        optimizer.zero_grad()
        loss = world.mean(lambda rank: loss_of(model, *part(rank)) * (rank > 0))
        loss.backward()
        return None if world.rank == 0 and not world.one_process else loss

    for step in range(STEPS):
        x, y = samples(step)

        def part(rank, x=x, y=y):
            return x.chunk(world.size)[rank], y.chunk(world.size)[rank]

        optimizer.step(closure)
    return model, optimizer


# Schedulers


def with_scheduler(world, before):
    model = network()
    optimizer = sgd(model)
    if before:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    model, optimizer = world.distribute(model, optimizer)
    if not before:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    return train(world, model, optimizer, after_step=lambda step: scheduler.step())


@case
def scheduler_made_before(world):
    return with_scheduler(world, True)


@case
def scheduler_made_after(world):
    return with_scheduler(world, False)


@case
def scheduler_made_before_and_state_loaded_after(world):
    model = network()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    model, optimizer = world.distribute(model, optimizer)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return train(world, model, optimizer, after_step=lambda step: scheduler.step())


@case
def one_cycle_of_rates_and_momenta(world):
    model = network()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1)
    model, optimizer = world.distribute(model, optimizer)
    return train(world, model, optimizer, after_step=lambda step: scheduler.step())


# What changes gradients


@case
def clipping_by_norm(world):
    def clip(model, optimizer):
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)

    return train(world, *begin(world), before_step=clip)


@case
def clipping_by_value(world):
    def clip(model, optimizer):
        nn.utils.clip_grad_value_(model.parameters(), 0.02)

    return train(world, *begin(world), before_step=clip)


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)


@case
def clipping_without_synchronize(world):
    return train(world, *begin(world), after_backward=clip)


@case
def gradients_that_are_replaced(world):
    def replace(model):
        for each in model.parameters():
            each.grad = each.grad * 0.5

    return train(world, *begin(world), after_backward=replace)


@case(ddp=False)
def gradients_that_are_given(world):
    """Gradients that no backward pass computed."""
    model, optimizer = begin(world)
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        params = list(model.parameters())
        for p, grad in zip(params, torch.autograd.grad(loss_of(model, x, y), params)):
            p.grad = grad
        optimizer.step()
    return model, optimizer


def with_loss_scaling(world, overflow, synchronize=True):
    model, optimizer = begin(world, network(dtype=torch.float32))
    device = torch.get_default_device().type
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
    for step in range(STEPS):
        x, y = world.batch(*samples(step, dtype=torch.float32))
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        if overflow and step == 1 and world.rank == 0:
            loss = loss * math.inf
        scaler.scale(loss).backward()
        if synchronize:
            world.average(optimizer)
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            with world.averaged(optimizer):
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
    return {**snapshot(model, optimizer), "scale": scaler.get_scale()}


@case(rounding=torch.float32)
def loss_scaling(world):
    return with_loss_scaling(world, False)


@case(rounding=torch.float32)
def loss_scaling_with_an_overflow_on_one_rank(world):
    return with_loss_scaling(world, True)


@case(rounding=torch.float32)
def loss_scaling_without_synchronize(world):
    return with_loss_scaling(world, True, synchronize=False)


@case(ddp=False)
def hooks_of_tensors(world):
    model = network()

    def halve(p):
        p.grad.mul_(0.5)

    for each in model.parameters():
        each.register_hook(lambda grad: grad * 2)
        each.register_post_accumulate_grad_hook(halve)
    return train(world, *begin(world, model))


@case
def hooks_of_steps(world):
    """An average of weights that a step hook made before, and one made after, keep."""
    model = network()
    optimizer = sgd(model)
    means, calls = {}, {"before": 0, "after": 0}

    def keep(optimizer, *ignored):
        for index, p in enumerate(optimizer.param_groups[0]["params"]):
            means[index] = 0.9 * means.get(index, 0) + 0.1 * p.detach()

    def count(name):
        def hook(*ignored):
            calls[name] += 1

        return hook

    optimizer.register_step_post_hook(keep)
    optimizer.register_step_pre_hook(count("before"))
    model, optimizer = world.distribute(model, optimizer)
    optimizer.register_step_post_hook(count("after"))
    train(world, model, optimizer)
    return {**snapshot(model, optimizer), **calls, **{f"mean {i}": m for i, m in means.items()}}


# Which parameters there are


@case
def group_that_is_added(world):
    model = network()
    head = nn.Linear(3, 3, dtype=torch.float64)
    both = nn.Sequential(model, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    both, optimizer = world.distribute(both, optimizer, named_parameters=None)
    train(world, both, optimizer, 2)
    optimizer.add_param_group({"params": head.parameters()})
    return train(world, both, optimizer, 2, first=2)


@case
def groups_with_options(world):
    model = network()
    groups = [
        {"params": model[0].parameters(), "lr": 0.2},
        {"params": model[2].parameters(), "weight_decay": 0.1},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    return train(world, *world.distribute(model, optimizer))


@case
def frozen_from_the_beginning(world):
    model = network()
    model[0].requires_grad_(False)
    return train(world, *world.distribute(model, sgd(model, weight_decay=0.1)))


@case(ddp=False)
def frozen_later(world):
    model = network()
    model, optimizer = world.distribute(model, sgd(model, weight_decay=0.1))
    train(world, model, optimizer, 2)
    optimizer.zero_grad()
    model[0].requires_grad_(False)
    return train(world, model, optimizer, 2, first=2)


@case(ddp=False)
def unfrozen_later(world):
    model = network()
    model[0].requires_grad_(False)
    model, optimizer = world.distribute(model, sgd(model, weight_decay=0.1))
    train(world, model, optimizer, 2)
    model[0].requires_grad_(True)
    return train(world, model, optimizer, 2, first=2)


@case(ddp=False)
def parameter_that_is_replaced(world):
    model, optimizer = begin(world)
    train(world, model, optimizer, 2)
    old, new = model[0].weight, nn.Parameter(model[0].weight.detach().clone())
    model[0].weight = optimizer.param_groups[0]["params"][0] = new
    del optimizer.state[old]
    return train(world, model, optimizer, 2, first=2, after_backward=clip)


def with_a_group_removed(world):
    """The model has its parameters still."""
    model = network()
    groups = [{"params": model[index].parameters()} for index in (0, 2)]
    model, optimizer = world.distribute(model, torch.optim.SGD(groups, lr=0.1), groups=2)
    del optimizer.param_groups[1]
    return model, optimizer


@case(ddp=False)
def group_that_is_replaced(world):
    model, optimizer = with_a_group_removed(world)
    model[2] = nn.Linear(8, 3, dtype=torch.float64)
    optimizer.add_param_group({"params": model[2].parameters()})
    return train(world, model, optimizer, after_backward=clip)


@case(ddp=False)
def group_that_is_removed(world):
    return train(world, *with_a_group_removed(world))


@case(ddp=False, rounding=torch.float32)
def converted_and_back_on_one_rank(world):
    model, optimizer = begin(world, network(dtype=torch.float32))

    def loss(step):
        if step == 2 and world.rank == 0:
            model.double().float()
        return loss_of(model, *world.batch(*samples(step, dtype=torch.float32)))

    return train(world, model, optimizer, loss=loss, after_backward=clip)


class Branches(nn.Module):
    """Two networks, of which a sample takes one."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([network(), network()])

    def forward(self, x, branch):
        return self.branches[branch](x)


def with_branches(world, branch, **options):
    """Train with ``branch(rank, step)``."""
    model = Branches()
    model, optimizer = world.distribute(model, sgd(model, weight_decay=0.1), **options)

    def loss(step):
        x, y = (each.chunk(world.size) for each in samples(step))
        return world.mean(
            lambda rank: nn.functional.mse_loss(model(x[rank], branch(rank, step)), y[rank])
        )

    return train(world, model, optimizer, loss=loss)


@case
def unused_on_one_rank(world):
    return with_branches(world, lambda rank, step: int(rank == 0))


@case
def unused_on_all_ranks(world):
    """Weight decay and momentum leave alone what has no gradient."""
    return with_branches(world, lambda rank, step: step % 2)


@case(ddp=False)
def unused_on_one_rank_in_groups(world):
    return with_branches(world, lambda rank, step: int(rank == 0), groups=2)


@case(ddp=False)
def unused_on_all_ranks_in_groups(world):
    return with_branches(world, lambda rank, step: step % 2, groups=3)


@case
def tied_weights(world):
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3)).double()
    model[2].weight = model[0].weight
    return train(world, *begin(world, model))


@case(ddp=False)
def groups_of_tensors(world):
    model = network()
    groups = [[model[0].weight, model[2].bias]]
    return train(world, *begin(world, model, groups=groups))


@case(ddp=False)
def two_groups(world):
    return train(world, *begin(world, groups=2))


# Several optimizers, several backward passes


@case(ddp=False)
def generator_and_discriminator(world):
    return adversaries(world, freeze=True)


@case(ddp=False)
def discriminator_that_is_not_frozen(world):
    """The generator's backward pass also computes gradients of the discriminator."""
    return adversaries(world, freeze=False)


def adversaries(world, freeze):
    generator, discriminator = network(5, 6, 3), network(3, 6, 1)
    generator, first = world.distribute(generator, sgd(generator, lr=0.05))
    discriminator, second = world.distribute(discriminator, sgd(discriminator, lr=0.05))
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        second.zero_grad()
        (discriminator(generator(x).detach()).mean() - discriminator(y).mean()).backward()
        second.step()
        discriminator.requires_grad_(not freeze)
        first.zero_grad()
        (-discriminator(generator(x)).mean()).backward()
        first.step()
        discriminator.requires_grad_(True)
    return {
        **{f"first {name}": value for name, value in snapshot(generator, first).items()},
        **{f"second {name}": value for name, value in snapshot(discriminator, second).items()},
    }


@case(ddp=False)
def two_optimizers_in_one_backward_pass(world):
    """Of layers whose parameters have equal names."""
    return train_layers(world, network(), lambda step: None)


@case(ddp=False)
def optimizer_whose_parameters_are_all_unfrozen_later(world):
    model = network()
    model[0].requires_grad_(False)
    return train_layers(world, model, lambda step: model[0].requires_grad_(step >= 2))


def train_layers(world, model, before_step):
    _, first = world.distribute(model[0], sgd(model[0]))
    _, second = world.distribute(model[2], sgd(model[2]))
    for step in range(STEPS):
        before_step(step)
        x, y = world.batch(*samples(step))
        first.zero_grad()
        second.zero_grad()
        loss_of(model, x, y).backward()
        clip(model)
        first.step()
        second.step()
    return {**snapshot(model, first), **{f"2 {n}": v for n, v in snapshot(model, second).items()}}


@case(ddp=False)
def optimizer_that_only_some_ranks_have(world):
    """It has the names of the parameters that all ranks train."""
    model, members = network(), max(1, world.size - 1)
    if not world.one_process:
        chosen = world.process_set(range(members))
        if world.rank < members:
            options = {"named_parameters": model.named_parameters(), "process_set": chosen}
            world.hvd.DistributedOptimizer(sgd(model), **options)
    return train(world, *begin(world))


@case
def two_backward_passes(world):
    """Without backward_passes_per_step; each averages."""
    return accumulate(world, *begin(world), 2)


@case(ddp=False)
def two_losses(world):
    """Of two networks with one optimizer, and a backward pass each."""
    model, optimizer = begin(world, Branches())
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        optimizer.zero_grad()
        for branch in range(2):
            nn.functional.mse_loss(model(x, branch), y).backward()
        optimizer.step()
    return model, optimizer


@case(ddp=False)
def another_pass_after_the_last(world):
    return accumulate(world, *begin(world, backward_passes_per_step=3), 4)


def accumulate(world, model, optimizer, passes):
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        optimizer.zero_grad()
        for x_part, y_part in zip(x.chunk(passes), y.chunk(passes)):
            (loss_of(model, x_part, y_part) / passes).backward()
        optimizer.step()
    return model, optimizer


@case(ddp=False)
def accumulated_gradients(world):
    return accumulate(world, *begin(world, backward_passes_per_step=2), 2)


@case(ddp=False)
def another_number_of_passes(world):
    model, optimizer = begin(world, backward_passes_per_step=4)
    if not world.one_process:
        optimizer.set_backward_passes_per_step(2)
    return accumulate(world, model, optimizer, 2)


@case(ddp=False)
def fewer_passes_than_said(world):
    return accumulate(world, *begin(world, backward_passes_per_step=3), 2)


@case(ddp=False)
def second_backward_pass_after_averaging(world):
    model, optimizer = begin(world)
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        world.average(optimizer)
        loss_of(model, y @ torch.ones(3, 5, dtype=torch.float64), y).backward()
        optimizer.step()
    return model, optimizer


@case(ddp=False)
def step_that_averages_what_is_averaged(world):
    """synchronize(), then step() without skip_synchronize(), with a sum."""
    model = network()
    options = {} if world.one_process else {"op": world.hvd.Sum}
    model, optimizer = world.distribute(model, sgd(model, lr=0.01), **options)
    for step in range(STEPS):
        x, y = world.batch(*samples(step))
        optimizer.zero_grad()
        (loss_of(model, x, y) / (1 if world.one_process else world.size)).backward()
        world.average(optimizer)
        optimizer.step()
    return model, optimizer


# Models and types


@case(ddp=False)
def compiled(world):
    model, optimizer = begin(world)
    train(world, torch.compile(model, backend="aot_eager"), optimizer)
    return model, optimizer


@case(ddp=False)
def checkpointed(world):
    return with_checkpoints(world, use_reentrant=False)


@case(ddp=False)
def checkpointed_by_backward_passes_in_the_backward_pass(world):
    return with_checkpoints(world, use_reentrant=True)


def with_checkpoints(world, **options):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Sequential):
        def forward(self, x):
            # the reentrant form has no gradients where no input has one
            x = self[0](x)
            return checkpoint(lambda x: self[2](self[1](x)), x, **options)

    model = Checkpointed(*network())
    return train(world, *begin(world, model))


@case
def channels_last(world):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()
    model = model.to(memory_format=torch.channels_last)
    model, optimizer = world.distribute(model, torch.optim.AdamW(model.parameters(), lr=0.01))

    def loss(step):
        x = world.batch(pictures(step)).to(memory_format=torch.channels_last)
        return model(x).square().mean()

    return train(world, model, optimizer, loss=loss)


def pictures(step):
    torch.manual_seed(step)
    return torch.randn(SAMPLES, 3, 6, 6, dtype=torch.float64)


@case(ddp=False)
def channels_last_on_one_rank(world):
    def change(model):
        if world.rank == 0:
            for each in model.parameters():
                if each.dim() == 4:
                    each.data = each.data.contiguous(memory_format=torch.channels_last)

    def loss(step):
        return model(world.batch(pictures(step))).square().mean()

    model, optimizer = begin(world, nn.Conv2d(3, 4, 3).double())
    return train(world, model, optimizer, loss=loss, after_backward=change)


@case
def complex_parameters(world):
    def loss(step):
        x, _ = samples(step)
        return model(world.batch(torch.complex(x, x.flip(0)))).abs().square().mean()

    model, optimizer = begin(world, nn.Linear(5, 3, dtype=torch.complex128))
    return train(world, model, optimizer, loss=loss)


class Words(nn.Module):
    """Two embeddings with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.first = nn.Embedding(10, 4, sparse=True, dtype=torch.float64)
        self.second = nn.Embedding(10, 4, sparse=True, dtype=torch.float64)

    def forward(self, words, both):
        out = self.first(words)
        return out + self.second(words) if both else out


def train_words(world, kind, both, **options):
    """Train with ``both(rank)`` embeddings."""
    model = Words()
    model, optimizer = world.distribute(model, kind(model.parameters(), lr=0.1), **options)

    def loss(step):
        words = torch.randint(10, (SAMPLES,), generator=random_numbers(step)).chunk(world.size)
        return world.mean(lambda rank: model(words[rank], both(rank)).square().mean())

    return train(world, model, optimizer, loss=loss)


@case(ddp=False)
def sparse_embeddings(world):
    return train_words(world, torch.optim.SparseAdam, lambda rank: True)


@case(ddp=False)
def sparse_embeddings_unused_on_one_rank(world):
    return train_words(world, torch.optim.SGD, lambda rank: rank == 0)


@case(ddp=False)
def sparse_embeddings_as_dense(world):
    return train_words(world, torch.optim.SGD, lambda rank: True, sparse_as_dense=True)


@case(ddp=False)
def sparse_embeddings_as_dense_unused_on_one_rank(world):
    kind, options = torch.optim.SparseAdam, {"sparse_as_dense": True}
    return train_words(world, kind, lambda rank: rank == 0, **options)


@case(ddp=False)
def synchronized_batch_norm_in_eval_mode(world):
    kind = nn.BatchNorm1d if world.one_process else world.hvd.SyncBatchNorm
    model = nn.Sequential(nn.Linear(5, 4), kind(4).eval(), nn.Linear(4, 3)).double()
    return train(world, *begin(world, model))


@case(rounding=torch.bfloat16)
def bfloat16_parameters(world):
    return train_in(world, torch.bfloat16)


def train_in(world, dtype, **options):
    model, optimizer = begin(world, network(dtype=dtype), **options)

    def loss(step):
        return loss_of(model, *world.batch(*samples(step, dtype=dtype)))

    return train(world, model, optimizer, loss=loss)


@case(rounding=torch.float32)
def mixed_types(world):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3).double())

    class Mixed(nn.Sequential):
        def forward(self, x):
            return self[2](self[1](self[0](x.float())).double())

    model = Mixed(*model)
    return train(world, *begin(world, model))


# What Horovod does with gradients


def compressed(world, name):
    options = {} if world.one_process else {"compression": getattr(world.hvd.Compression, name)}
    return train_in(world, torch.float32, **options)


@case(ddp=False, rounding=torch.float16)
def compression_to_float16(world):
    return compressed(world, "fp16")


@case(ddp=False, rounding=torch.bfloat16)
def compression_to_bfloat16(world):
    return compressed(world, "bf16")


@case(ddp=False, rounding=torch.bfloat16)
def compression_of_large_bfloat16(world):
    """Gradients of 1e5, which are out of float16's range."""
    model = nn.Linear(5, 3, dtype=torch.bfloat16)
    options = {} if world.one_process else {"compression": world.hvd.Compression.fp16}
    model, optimizer = world.distribute(model, sgd(model, lr=1e-7), **options)

    def loss(step):
        x, _ = samples(step, dtype=torch.bfloat16)
        return model(world.batch(x)).sum(1).mean() * 1e5

    return train(world, model, optimizer, loss=loss)


@case(ddp=False)
def predivided(world):
    return train(world, *begin(world, gradient_predivide_factor=3.0))


@case(ddp=False)
def predivided_in_groups(world):
    return train(world, *begin(world, gradient_predivide_factor=3.0, groups=2))


@case(ddp=False, rounding=torch.float16)
def float16_gradients_that_add_up_beyond_its_range(world):
    p = nn.Parameter(torch.zeros(3, dtype=torch.float16))
    model, optimizer = world.distribute(nn.ParameterList([p]), torch.optim.SGD([p], lr=1e-4))
    return train(world, model, optimizer, 1, loss=lambda step: (p * 40000.0).sum())


@case(ddp=False)
def process_set(world):
    """The last rank trains nothing; the others have the whole batch."""
    members = max(1, world.size - 1)
    model = network()
    optimizer = sgd(model)
    if not world.one_process:
        chosen = world.process_set(range(members))
        model, optimizer = world.distribute(model, optimizer, process_set=chosen)
    if world.rank < members:
        for step in range(STEPS):
            x, y = samples(step)
            if not world.one_process:
                x, y = x.chunk(members)[world.rank], y.chunk(members)[world.rank]
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
    if not world.one_process:
        world.hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
        world.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer


# Checkpoints and state


def trained(steps):
    """A model and an optimizer with state, as every process gets them from a checkpoint."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for step in range(steps):
        x, y = samples(100 + step)
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    return model, optimizer


@case
def resumed_before(world):
    return train(world, *world.distribute(*trained(3)))


@case
def resumed_after(world):
    restored, old = trained(3)
    checkpoint = copy.deepcopy((restored.state_dict(), old.state_dict()))
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = world.distribute(model, optimizer)
    getattr(model, "module", model).load_state_dict(checkpoint[0])
    optimizer.load_state_dict(checkpoint[1])
    return train(world, model, optimizer)


@case(ddp=False)
def resumed_by_rank_0_alone(world):
    model, optimizer = trained(3 if world.rank == 0 else 0)
    return train(world, *world.distribute(model, optimizer))


@case(ddp=False)
def state_that_only_another_rank_has(world):
    """The root's wins, which has none."""
    model, optimizer = trained(0)
    if world.rank:
        optimizer = trained(3)[1]
        optimizer.param_groups[0]["params"] = list(model.parameters())
    return train(world, *world.distribute(model, optimizer))


@case(ddp=False)
def momentum_that_was_restored(world):
    model = network()
    optimizer = sgd(model)
    for each in model.parameters():
        optimizer.state[each]["momentum_buffer"] = torch.ones_like(each)
    return train(world, *world.distribute(model, optimizer))


def train_lbfgs_from_rank_0(world):
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    if world.rank == 0:
        x, y = samples(50)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return train_with_closure(world, *world.distribute(model, optimizer))


@case(ddp=False)
def lbfgs_restored_by_rank_0_alone(world):
    return train_lbfgs_from_rank_0(world)


# Uneven data


@case(ddp=False)
def uneven_data_with_join(world):
    """Ranks that have joined count as zeros in the mean over all ranks."""

    def loss(step):
        x, y = (each.chunk(world.size) for each in samples(step))
        present = range(1 if step >= 2 else world.size)
        return world.mean(
            lambda rank: loss_of(model, x[rank], y[rank]) if rank in present else 0.0
        )

    model, optimizer = begin(world)
    train(world, model, optimizer, 2 if world.rank > 0 else STEPS, loss=loss)
    if not world.one_process:
        assert world.join() == 0
        world.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        world.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer


# Gradients of collectives: those of the sum of all ranks' losses


def gradient(world, collective, one_process):
    """Of ``collective(x)``, whose outputs on all ranks are weighted and added up."""
    x = [torch.linspace(1, 2, 12, dtype=torch.float64).reshape(6, 2) * (r + 1) for r in range(4)]
    x = [each.requires_grad_() for each in x[: world.size]]
    if world.one_process:
        loss = sum(((r + 1) * out).sum() for r, out in enumerate(one_process(x)))
        loss.backward()
        # each rank has its own: the first one's is compared
        return {"gradient": x[0].grad, "of the last": x[-1].grad}
    out = collective(x[world.rank])
    ((world.rank + 1) * out).sum().backward()
    gathered = world.hvd.allgather(x[world.rank].grad[None])
    return {"gradient": gathered[0], "of the last": gathered[-1]}


@case(ddp=False)
def gradient_of_allreduce(world):
    return gradient(
        world,
        lambda x: world.hvd.allreduce(x, op=world.hvd.Sum),
        lambda x: [sum(x)] * world.size,
    )


@case(ddp=False)
def gradient_of_the_average(world):
    return gradient(
        world,
        lambda x: world.hvd.allreduce(x),
        lambda x: [sum(x) / world.size] * world.size,
    )


@case(ddp=False)
def gradient_of_allgather(world):
    return gradient(world, lambda x: world.hvd.allgather(x), lambda x: [torch.cat(x)] * world.size)


@case(ddp=False)
def gradient_of_grouped_allgather(world):
    return gradient(
        world,
        lambda x: torch.cat(list(world.hvd.grouped_allgather([x, 2 * x]))),
        lambda x: [torch.cat([*x, *[2 * each for each in x]])] * world.size,
    )


@case(ddp=False)
def gradient_of_broadcast(world):
    return gradient(
        world,
        lambda x: world.hvd.broadcast(x, root_rank=0),
        lambda x: [x[0] + 0 * x[-1]] * world.size,
    )


@case(ddp=False)
def gradient_of_reducescatter(world):
    return gradient(
        world,
        lambda x: world.hvd.reducescatter(x, op=world.hvd.Sum),
        lambda x: sum(x).chunk(world.size),
    )


@case(ddp=False)
def gradient_of_the_average_scattered(world):
    return gradient(
        world,
        lambda x: world.hvd.reducescatter(x),
        lambda x: (sum(x) / world.size).chunk(world.size),
    )


@case(ddp=False)
def gradient_of_alltoall(world):
    return gradient(
        world,
        lambda x: world.hvd.alltoall(x),
        lambda x: [
            torch.cat([each.chunk(world.size)[rank] for each in x]) for rank in range(world.size)
        ],
    )


@case(ddp=False)
def contrastive_loss(world):
    """A loss of all ranks' features, as CLIP has it."""

    def loss(step):
        out = model(world.batch(samples(step)[0]))
        out = out if world.one_process else world.hvd.allgather(out)
        return nn.functional.cross_entropy(out @ out.flip(1).t(), torch.arange(len(out)))

    model, optimizer = begin(world, network(5, 8, 4))
    return train(world, model, optimizer, loss=loss)
