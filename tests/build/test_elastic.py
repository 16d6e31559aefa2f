"""examples/elastic, for real: a worker is killed, another is added, and the job goes on."""

import base64
import json
import signal
import socket

from tests.build import elastic
from tests.build.security import payload


def test_training_goes_on_when_a_worker_is_killed_and_when_one_is_added(built_horovod, tmp_path):
    with elastic.job(built_horovod.target, tmp_path, "--epochs", 1000) as job:
        check(job)
    assert not list(tmp_path.glob("marker*"))
    assert (tmp_path / "model.pt").stat().st_size > 0


def check(job: elastic.Job) -> None:
    """What has to hold from the beginning of a job to its end."""
    begun = job.wait_for(elastic.BEGIN % 2, 2)
    assert {match["rank"] for match in begun} == {"0", "1"}
    assert begun[0]["weights"] == begun[1]["weights"]
    job.wait_for_commits(5)

    # the harder case: all that a worker gets from another one, it gets from rank 0
    lost, kept = job.hosts_by_rank()
    job.workers()[lost].send_signal(signal.SIGKILL)
    (alone,) = job.wait_for(elastic.BEGIN % 1)
    assert job.committed(alone), job.output
    job.wait_for_commits(5)

    attack(job, kept)
    job.set_hosts({kept: 2})
    together = job.wait_for(elastic.BEGIN % 2, 4)[2:]
    assert {match["rank"] for match in together} == {"0", "1"}
    assert all(job.committed(match) for match in together), job.output
    job.wait_for_commits(5)

    (job.directory / "STOP").touch()
    assert job.wait() == 0, job.output
    (trained,) = job.wait_for(elastic.END)
    assert job.committed(trained), job.output

    steps = [int(match["step"]) for match in job.commits()]
    assert sorted(set(steps)) == list(range(10, steps[-1] + 1, 10)), steps
    losses = [float(match["loss"]) for match in job.commits()]
    # of new weights it is that of the first steps; ten steps of one worker or two differ by less
    assert max(losses[5:]) < losses[0] / 2, losses


def attack(job: elastic.Job, host: str) -> None:
    """Whoever has no key is refused, and takes the place of no worker."""
    port = job.workers()[host].environ()["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    place = f"/worker_addresses/{host}:0"
    pickled = base64.b64encode(payload.pickled(job.directory / "marker"))
    assert payload.request(port, "PUT", place, pickled) == 400
    with socket.create_server(("127.0.0.1", 0)) as false:
        address = ["127.0.0.1", false.getsockname()[1]]
        key = base64.b64encode(b"k" * 32).decode()
        worker = json.dumps({"addresses": {"lo": [address]}, "secret_key": key})
        false.close()
        assert payload.request(port, "PUT", place, worker) == 400
    assert payload.request(port, "GET", place) == 404
    assert payload.request(port, "HEAD", "/hosts") == 405
