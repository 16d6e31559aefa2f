"""Parts of an elastic job, each a function that one process calls."""

import time
from unittest import mock

import horovod.torch as hvd
import torch
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.worker import HostUpdateResult


def model_of(value):
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(value)
    return model


def sync_is_of_one_moment():
    """After an interrupt between commits: the model of now, and the step of now."""
    hvd.init()
    state = hvd.elastic.TorchState(model=model_of(1.0), step=0)
    state.commit()
    state.step = 7
    state.model.weight.data.fill_(2.0)
    state.sync()
    assert (state.step, state.model.weight.item()) == (7, 2.0)


def what_was_synchronized_is_restored():
    """A worker that comes later and loses another one before its first commit."""
    hvd.init()
    model = model_of(1.0)
    state = hvd.elastic.TorchState(model=model, step=0)
    # as a broadcast of rank 0's would
    model.weight.data.fill_(3.0)
    state.sync()
    model.weight.data.fill_(9.0)
    state.restore()
    assert model.weight.item() == 3.0


def what_changed_in_place_is_restored():
    hvd.init()
    optimizer = torch.optim.SGD(model_of(1.0).parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(hvd.DistributedOptimizer(optimizer), 1)
    state = hvd.elastic.TorchState(losses=[1.0], scheduler=scheduler)
    state.sync()
    for _ in range(2):
        state.losses.append(2.0)
        optimizer.step()
        scheduler.step()
        state.restore()
        assert (state.losses, scheduler.last_epoch) == ([1.0], 0)


def fewer_samples_than_ranks():
    hvd.init()
    with mock.patch.multiple("horovod.torch.elastic.sampler", size=lambda: 5, rank=lambda: 4):
        sampler = hvd.elastic.ElasticSampler(list("ab"), shuffle=False)
    assert list(sampler) == [0]


class Resets:
    """A state that is told of hosts while it is reset, and as a worker starts."""

    def __init__(self):
        self.synchronized = 0
        hvd.init()
        self.state = ObjectState(hvd.broadcast_object, hvd.rank, step=0)
        self.state.sync = self.sync
        self.told = 0

    def sync(self):
        self.synchronized += 1

    def tell(self, update):
        self.told += 1
        self.state.on_hosts_updated(time.time() + self.told, update)


def every_reset_is_followed_by_sync():
    """And what is told during a reset is looked at afterwards."""
    resets = Resets()
    interrupts = []

    def train(state):
        if not interrupts:
            resets.tell(HostUpdateResult.removed)
        try:
            state.check_host_updates()
        except HostsUpdatedInterrupt as interrupt:
            interrupts.append(interrupt)
            raise

    def reset():
        if len(interrupts) == 1:
            resets.tell(HostUpdateResult.added)

    run_fn(train, reset)(resets.state)
    assert len(interrupts) == 2, interrupts
    assert resets.synchronized == 3


def driver_tells_a_worker_that_starts_late():
    """A host is gone before the coordinator has said where it listens."""
    hosts = {"one": 1, "two": 1}
    discovery = mock.Mock()
    discovery.find_available_hosts_and_slots.side_effect = lambda: dict(hosts)
    driver = ElasticDriver(mock.Mock(), discovery, min_num_proc=1, max_num_proc=2, timeout=20)
    driver.wait_for_available_slots(2)

    def work(slot, events):
        while not driver.finished():
            time.sleep(0.05)
        return 0, time.time()

    driver.start(2, work)
    coordinator = driver.get_coordinator_info()
    del hosts[next(name for name in hosts if name != coordinator.hostname)]
    # as often as the driver looks in this time
    time.sleep(2.5)
    client = mock.Mock()
    with mock.patch("horovod.runner.elastic.driver.WorkerNotificationClient", return_value=client):
        driver.register_worker_server(coordinator.hostname, coordinator.local_rank, {}, b"")
    until = time.monotonic() + 10
    while not client.notify_hosts_updated.called and time.monotonic() < until:
        time.sleep(0.05)
    told = client.notify_hosts_updated.call_args_list
    assert len(told) == 1 and told[0].args[1] == HostUpdateResult.removed, told
    time.sleep(1.5)
    assert len(told) == 1
    driver.stop()
