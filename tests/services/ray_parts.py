"""Parts of Horovod on Ray, each a function that a driver calls; prints what becomes of each."""

import http.client
import tempfile
import threading

import horovod.torch as hvd
import parts
import ray
import torch
from horovod.ray import RayExecutor, ray_logger
from horovod.runner.common.util.settings import Settings
from parts import error_of, part


def total(factor=1):
    """A sum over all ranks; each logs its own."""
    hvd.init()
    ray_logger.log({"rank": hvd.rank()})
    found = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
    return found * factor, hvd.size()


def fail():
    raise ValueError("own words")


def started(settings=None, **options):
    settings = settings or RayExecutor.create_settings(nics={"lo"})
    executor = RayExecutor(settings, use_gpu=False, **(options or {"num_workers": 2}))
    executor.start()
    return executor


def status(port, path="/global/0", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body=b"address" if method == "PUT" else None)
        return connection.getresponse().status
    except OSError:
        return "nobody"
    finally:
        connection.close()


@part
def settings_of_the_documentation():
    executor = started(Settings(verbose=0, nics={"lo"}))
    assert executor.run(total, kwargs={"factor": 2}) == [(6.0, 2)] * 2
    executor.shutdown()


@part
def shutdown_at_any_time():
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.shutdown()
    assert "call start() first" in str(error_of(executor.run, total))
    executor.start()
    executor.shutdown()
    executor.shutdown()
    executor.start()
    assert executor.run(total) == [(3.0, 2)] * 2
    executor.shutdown()


@part
def a_rendezvous_for_the_job_alone():
    before = threading.active_count()
    executor = started()
    port = executor.adapter.coordinator.global_rendezv_port
    assert [status(port), status(port, method="PUT")] == [403, 403]
    assert executor.run(total) == [(3.0, 2)] * 2
    executor.shutdown()
    assert status(port) == "nobody"
    assert threading.active_count() == before


@part
def callbacks_get_what_rank_0_logs():
    executor = started()
    logged = []
    for _ in range(2):
        assert executor.run(total, callbacks=[logged.append]) == [(3.0, 2)] * 2
    assert logged == [{"rank": 0}] * 2
    # and nobody listens
    executor.run(total)
    executor.execute(lambda _: ray_logger.log("once more"), callbacks=[logged.append])
    assert logged[2:] == ["once more"]
    raised = error_of(executor.run, total, callbacks=[lambda logged: fail()])
    assert "own words" in str(raised)
    executor.shutdown()


@part
def a_failure_says_why():
    executor = started()
    assert "own words" in str(error_of(executor.run, fail))
    assert executor.run(total) == [(3.0, 2)] * 2
    executor.shutdown()


@part
def elastic_workers():
    logged = []
    executor = started(min_workers=2, max_workers=2)
    port = executor.adapter.rendezvous._httpd.server_address[1]
    assert status(port) == 403
    assert executor.run(total, callbacks=[logged.append]) == [(3.0, 2)] * 2
    assert {"rank": 0} in logged
    executor.shutdown()
    assert status(port) == "nobody"


@part
def an_elastic_executor_without_a_run():
    executor = started(min_workers=2, max_workers=2)
    port = executor.adapter.rendezvous._httpd.server_address[1]
    executor.shutdown()
    assert status(port) == "nobody"


@part
def elastic_workers_execute():
    executor = started(min_workers=2, max_workers=2)
    assert executor.adapter.execute(lambda _: total()) == [(3.0, 2)] * 2
    executor.shutdown()


@part
def one_host_without_interfaces():
    executor = RayExecutor(
        RayExecutor.create_settings(), min_workers=2, max_workers=2, elastic_timeout=3
    )
    told = str(error_of(executor.start))
    executor.shutdown()
    assert "minimum number of slots" in told and "create_settings(nics=" in told, told


def main():
    # below the tests' folder, the paths of Ray's sockets could get too long
    with tempfile.TemporaryDirectory(prefix="hvd-ray-") as folder:
        ray.init(
            num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=folder
        )
        parts.run()
        ray.shutdown()


if __name__ == "__main__":
    main()
