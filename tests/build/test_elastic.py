"""examples/elastic, for real: a worker is killed, another is added, and the job goes on."""

import base64
import contextlib
import signal

import psutil

from tests.build import elastic
from tests.build.security import payload


def test_training_goes_on_when_a_worker_is_killed_and_when_one_is_added(built_horovod, tmp_path):
    # epochs of 32 steps on two workers: some end in each part of the job
    options = ["--samples", 2**11, "--epochs", 10**6]
    with elastic.job(built_horovod.target, tmp_path, *options) as job:
        check(job)
    assert not list(tmp_path.glob("marker*"))
    assert (tmp_path / "model.pt").stat().st_size > 0


#: What the example of Keras prints: at its begin, with that many workers; and of each epoch.
BEGIN_OF_KERAS = r"rank \d of %d at epoch (?P<epoch>\d+), batch \d+: weights (?P<weights>[\d.]+)"
EPOCH_OF_KERAS = r"epoch \d+ ended: loss (?P<loss>[\d.]+), weights [\d.]+"


def test_fit_of_keras_goes_on_when_a_worker_is_killed(built_tensorflow, tmp_path):
    program = elastic.DIRECTORY / "tensorflow2_keras_mnist_elastic.py"
    options = ["--samples", 2**11, "--epochs", 10]
    with elastic.job(built_tensorflow.target, tmp_path, *options, program=program) as job:
        begun = job.wait_for(BEGIN_OF_KERAS % 2, 2)
        assert begun[0]["weights"] == begun[1]["weights"], job.output
        job.wait_for(EPOCH_OF_KERAS, 2)
        # what the other one goes on with, it has had from this one
        lost, _ = job.hosts_by_rank()
        job.workers()[lost].send_signal(signal.SIGKILL)
        (alone,) = job.wait_for(BEGIN_OF_KERAS % 1)
        # from a commit, of which there are three in an epoch
        assert 1 <= int(alone["epoch"]) < 10, job.output
        job.wait_for(r"trained to epoch 10, batch 0: weights [\d.]+")
        assert job.wait() == 0, job.output
        losses = [float(match["loss"]) for match in job.lines(EPOCH_OF_KERAS)]
    assert len(losses) >= 9 and max(losses[2:]) < losses[0] / 2, losses
    assert (tmp_path / "model.keras").stat().st_size > 0


def check(job: elastic.Job) -> None:
    """What has to hold from the beginning of a job to its end."""
    begun = job.wait_for(elastic.BEGIN % 2, 2)
    assert {match["rank"] for match in begun} == {"0", "1"}
    assert begun[0]["weights"] == begun[1]["weights"]
    train_on(job)

    # the harder case: all that a worker gets from another one, it gets from rank 0
    lost, kept = job.hosts_by_rank()
    job.workers()[lost].send_signal(signal.SIGKILL)
    (alone,) = job.wait_for(elastic.BEGIN % 1)
    # rank 0 may have been killed between the reduction of a commit and its line
    unprinted = 0 < int(alone["step"]) - job.last_commit_before(alone) <= 10
    assert unprinted or job.committed(alone), job.output
    train_on(job)

    attack(job, kept)
    job.set_hosts({kept: 2})
    together = job.wait_for(elastic.BEGIN % 2, 4)[2:]
    assert {match["rank"] for match in together} == {"0", "1"}
    assert all(job.committed(match) for match in together), job.output
    train_on(job)

    (job.directory / "STOP").touch()
    assert job.wait() == 0, job.output
    (trained,) = job.wait_for(elastic.END)
    assert job.committed(trained), job.output

    commits = job.lines(elastic.COMMIT)
    steps = {int(match["step"]) for match in [*commits, alone] if int(match["step"]) % 10 == 0}
    assert steps == set(range(10, max(steps) + 1, 10)), sorted(steps)
    losses = [float(match["loss"]) for match in commits]
    # of new weights it is that of the first steps; ten steps of one worker or two differ by less
    assert max(losses[5:]) < losses[0] / 2, losses


def train_on(job: elastic.Job) -> None:
    """Wait for five further commits, and for the end of an epoch."""
    job.wait_for_more(elastic.COMMIT, 5)
    job.wait_for_more(elastic.EPOCH, 1)


def attack(job: elastic.Job, host: str) -> None:
    """Whoever has no key is refused, and takes the place of no worker."""
    worker = job.workers()[host]
    port = worker.environ()["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    place = f"/worker_addresses/{host}:0"
    pickled = base64.b64encode(payload.pickled(job.directory / "marker"))
    assert payload.request(port, "PUT", place, pickled) == 403
    assert payload.request(port, "PUT", "/global/0", b"address") == 403
    for method in ("GET", "DELETE"):
        for path in (place, "/global/0", f"/rank_and_size/{host}:0"):
            assert payload.request(port, method, path) == 403
    assert payload.request(port, "HEAD", "/hosts") == 405
    key = worker.environ()["_HOROVOD_RENDEZVOUS_KEY"]
    assert len(key) == 64
    family = [job.launcher.pid, *(each.pid for each in job.processes())]
    for pid in family:
        # one of them, such as a shell, may have ended since
        with contextlib.suppress(psutil.NoSuchProcess):
            assert key not in " ".join(psutil.Process(pid).cmdline())
