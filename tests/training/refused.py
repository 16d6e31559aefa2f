"""Programs that Horovod refuses.  Each returns the message; its docstring has words of it."""

import copy
import pickle

import torch
from cases_torch import clip, loss_of, network, samples, sgd
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint


def message(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def sum_of_ranks(world):
    return world.hvd.allreduce(torch.tensor(float(world.rank)), op=world.hvd.Sum).item()


def prepared(world, **options):
    world.begin()
    model = network()
    return world.distribute(model, sgd(model), **options)


def backward(world, model):
    loss_of(model, *world.batch(*samples(0))).backward()


def refuse_a_sum_of_sums(world):
    """reduced already and would be reduced twice
    optimizer.zero_grad()"""
    return add_to_a_sum(world, "synchronize")


def refuse_to_add_to_a_sum_after_a_step(world):
    """reduced already and would be reduced twice
    optimizer.zero_grad()"""
    return add_to_a_sum(world, "step")


def add_to_a_sum(world, after):
    model, optimizer = prepared(world, op=world.hvd.Sum)
    backward(world, model)
    getattr(optimizer, after)()
    return message(backward, world, model)


def refuse_to_clip_before_the_last_pass(world):
    """AssertionError: The gradient of
    was changed before the last of 2 backward passes
    Call optimizer.synchronize() before"""
    model, optimizer = prepared(world, backward_passes_per_step=2)
    backward(world, model)
    clip(model)
    return message(optimizer.step)


def refuse_a_layer_in_two_reentrant_checkpoints(world):
    """AssertionError: The gradient of
    was computed twice in one backward pass
    use_reentrant=False"""
    model, _ = prepared(world)
    layer = torch.nn.Linear(3, 3, dtype=torch.float64)
    layer, _of_layer = world.distribute(layer, sgd(layer))
    out = model(samples(0)[0])
    for _ in range(2):
        out = checkpoint(layer, out, use_reentrant=True)
    # computed first in the backward pass, which waits for the others at its end
    return message((layer(out).sum() + out.sum()).backward)


def refuse_to_step_in_a_backward_pass(world):
    """AssertionError: The gradient of
    was removed during the backward pass
    when loss.backward() has returned"""
    model, optimizer = prepared(world)

    def step(p):
        optimizer.step()
        optimizer.zero_grad()

    model[2].bias.register_post_accumulate_grad_hook(step)
    return message(backward, world, model)


def refuse_to_broadcast_what_is_no_tensor(world):
    """ValueError: '_extra_state' is no tensor but a dict
    broadcast_object()"""
    return message(world.hvd.broadcast_parameters, {"_extra_state": {}}, root_rank=0)


def refuse_a_gradient_with_a_graph(world):
    """AssertionError: The gradient of
    torch.autograd.grad()"""
    model, _ = prepared(world)
    loss = loss_of(model, *world.batch(*samples(0)))
    return message(loss.backward, create_graph=True)


def refuse_a_gradient_that_is_changed_while_it_is_averaged(world):
    """AssertionError: The gradient of
    was changed during the backward pass
    when loss.backward() has returned"""
    model, _ = prepared(world)

    def change_the_last_layers(p):
        model[2].weight.grad *= 2

    model[0].weight.register_post_accumulate_grad_hook(change_the_last_layers)
    return message(backward, world, model)


def refuse_to_wrap_twice(world):
    """ValueError: The optimizer is distributed already
    create it anew"""
    _, optimizer = prepared(world)
    return message(world.hvd.DistributedOptimizer, optimizer)


def refuse_a_replaced_step(world):
    """ValueError: optimizer.step was replaced
    Call hvd.DistributedOptimizer() first"""
    optimizer = sgd(network())
    optimizer.step = lambda: None
    return message(world.hvd.DistributedOptimizer, optimizer)


def refuse_to_copy(world):
    """TypeError: A distributed optimizer cannot be copied or pickled
    optimizer.state_dict()"""
    _, optimizer = prepared(world)
    return message(copy.deepcopy, optimizer)


def refuse_to_pickle(world):
    """TypeError: A distributed optimizer cannot be copied or pickled"""
    _, optimizer = prepared(world)
    return message(pickle.dumps, optimizer)


def refuse_other_groups_on_one_rank(world):
    """ValueError: The parameter groups of the optimizer differ between ranks"""
    model = network()
    layers = [model[0], model[2]] if world.rank else [model]
    groups = [{"params": list(each.parameters())} for each in layers]
    if world.rank == 0:
        groups = [{"params": [p]} for p in model.parameters()]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    told = message(world.hvd.broadcast_optimizer_state, optimizer, root_rank=0)
    return (
        told
        if world.rank
        else told.replace("nothing was refused", refuse_other_groups_on_one_rank.__doc__)
    )


def reduce_while_a_rank_has_joined(world, function):
    if world.rank == 0:
        told = message(function)
        world.hvd.join()
    else:
        told = None
        world.hvd.join()
    return world.hvd.broadcast_object(told, root_rank=0)


def refuse_min_after_join(world):
    """Allreduce with Min, Max or Product is not supported with Join
    Use Sum or Average"""
    x = torch.tensor([5.0])
    # once before, so that the answer is in the cache
    world.hvd.allreduce(x, op=world.hvd.Min, name="cached")
    return reduce_while_a_rank_has_joined(
        world, lambda: world.hvd.allreduce(x, op=world.hvd.Min, name="cached")
    )


def refuse_max_after_join(world):
    """Allreduce with Min, Max or Product is not supported with Join"""
    x = torch.tensor([-5.0])
    return reduce_while_a_rank_has_joined(world, lambda: world.hvd.allreduce(x, op=world.hvd.Max))


def refuse_product_after_join(world):
    """Allreduce with Min, Max or Product is not supported with Join"""
    x = torch.tensor([5.0])
    return reduce_while_a_rank_has_joined(
        world, lambda: world.hvd.allreduce(x, op=world.hvd.Product)
    )


def refuse_a_barrier_after_join(world):
    """Barrier is not supported with Join"""
    return reduce_while_a_rank_has_joined(world, world.hvd.barrier)


def refuse_allgather_after_join(world):
    """Allgather is not supported with Join
    sparse_as_dense=True"""
    x = torch.ones(3, 2)
    world.hvd.allgather(x, name="cached allgather")
    return reduce_while_a_rank_has_joined(
        world, lambda: world.hvd.allgather(x, name="cached allgather")
    )


def refuse_alltoall_after_join(world):
    """Alltoall is not supported with Join"""
    x = torch.ones(world.size * 2)
    world.hvd.alltoall(x, name="cached alltoall")
    return reduce_while_a_rank_has_joined(
        world, lambda: world.hvd.alltoall(x, name="cached alltoall")
    )


def refuse_broadcast_after_join(world):
    """Broadcast is not supported with Join"""
    x = torch.ones(3)
    world.hvd.broadcast(x, 0, name="cached broadcast")
    return reduce_while_a_rank_has_joined(
        world, lambda: world.hvd.broadcast(x, 0, name="cached broadcast")
    )


def refuse_reducescatter_after_join(world):
    """Reducescatter is not supported with Join"""
    x = torch.ones(world.size)
    world.hvd.reducescatter(x, op=world.hvd.Sum, name="cached scatter")
    return reduce_while_a_rank_has_joined(
        world,
        lambda: world.hvd.reducescatter(x, op=world.hvd.Sum, name="cached scatter"),
    )


def refuse_a_set_that_is_not_registered(world):
    """ValueError: ProcessSet(process_set_id=None, ranks=[0], mpi_comm=None) is not registered
    hvd.add_process_set()"""
    return message(world.hvd.allreduce, torch.ones(2), process_set=world.hvd.ProcessSet([0]))


def refuse_to_distribute_over_a_set_that_is_not_registered(world):
    """ValueError: ProcessSet(process_set_id=None, ranks=[0], mpi_comm=None) is not registered
    hvd.init(process_sets=[...])"""
    return message(prepared, world, process_set=world.hvd.ProcessSet([0]))


def refuse_a_sum_of_booleans(world):
    """ValueError: Boolean tensors have no sum
    op=hvd.Max
    tensor.int()"""
    return message(world.hvd.allreduce, torch.tensor([True]), op=world.hvd.Sum)


def refuse_the_least_complex_number(world):
    """ValueError: Complex tensors have no reduction but"""
    return message(world.hvd.allreduce, torch.tensor([1j]), op=world.hvd.Min)


def refuse_a_sparse_tensor(world):
    """ValueError: Sparse tensors are not supported
    tensor.to_dense()"""
    return message(world.hvd.allreduce, torch.eye(2).to_sparse(), op=world.hvd.Sum)


def refuse_the_gradient_of_max(world):
    """NotImplementedError: An allreduce has a gradient with op=hvd.Sum and op=hvd.Average
    detach()"""
    x = torch.ones(2, requires_grad=True)
    return message(world.hvd.allreduce(x, op=world.hvd.Max).sum().backward)


def refuse_a_forward_derivative(world):
    """NotImplementedError: You must implement the jvp function"""
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        return message(world.hvd.allreduce, x, op=world.hvd.Sum)


def refuse_a_transform(world):
    """RuntimeError: In order to use an autograd.Function with functorch transforms"""
    return message(torch.func.vmap(world.hvd.allgather), torch.ones(2, 3))


def refuse_to_exchange_a_number(world):
    """ValueError: alltoall expects a tensor with at least one dimension"""
    return message(world.hvd.alltoall, torch.tensor(1.0))


def refuse_splits_that_leave_rows(world):
    """ValueError: Sum of splits entries is less than the first dimension of tensor
    tensor[:sum(splits)]"""
    splits = [1] * world.size
    return message(world.hvd.alltoall, torch.ones(world.size + 1), splits=splits)


def refuse_negative_splits(world):
    """ValueError: Splits entries must not be negative"""
    splits = [-1] + [1] * (world.size - 1)
    return message(world.hvd.alltoall, torch.ones(world.size - 2), splits=splits)


def refuse_splits_of_one_rank(world):
    """plits
    first dimension"""
    splits = [1] * world.size
    return message(world.hvd.alltoall, torch.ones(world.size + (world.rank == 0)), splits=splits)


def refuse_a_group_whose_first_tensors_differ(world):
    """Mismatched ALLREDUCE tensor shapes"""
    tensors = [torch.ones(3 + world.rank), torch.ones(3)]
    return message(world.hvd.grouped_allreduce, tensors, op=world.hvd.Sum)


def refuse_to_gather_a_group_whose_first_tensors_differ(world):
    """Mismatched ALLGATHER tensor shapes"""
    tensors = [torch.ones(3, 3 + world.rank), torch.ones(3)]
    return message(world.hvd.grouped_allgather, tensors)


def refuse_to_scatter_a_group_whose_first_tensors_differ(world):
    """Mismatched REDUCESCATTER tensor shapes"""
    tensors = [torch.ones(6, 3 + world.rank), torch.ones(6)]
    return message(world.hvd.grouped_reducescatter, tensors, op=world.hvd.Sum)
