"""Hosts and ranks that die while a job runs; docs/troubleshooting.md says what is to be seen."""

from __future__ import annotations

import contextlib
import time

import psutil
import pytest

from tests.build import elastic
from tests.checkout import script
from tests.hosts.jobs import ENDLESS


def rank_on(cluster, host: str) -> psutil.Process:
    """The process that is a rank on a host."""
    (rank,) = [p for p in cluster.network.hosts[host].processes() if p.name().startswith("python")]
    return rank


def kill_rank(cluster, host):
    rank_on(cluster, host).kill()


def stop_rank(cluster, host):
    rank_on(cluster, host).suspend()


def kill_host(cluster, host):
    cluster.network.hosts[host].kill()


def pull_cable(cluster, host):
    cluster.network.plug(host, "down")


@pytest.fixture
def repaired(cluster):
    """A function that makes a host run and reachable again; it is called for all in the end."""

    def repair(host):
        if cluster.network.hosts[host].starter.poll() is not None:
            cluster.network.start(host)
        cluster.network.plug(host, "up")
        for process in cluster.network.hosts[host].processes():
            process.resume()

    yield repair
    for host in cluster.network.hosts:
        repair(host)


@pytest.mark.parametrize("die", [kill_rank, stop_rank, kill_host, pull_cable])
def test_a_static_job_over_gloo_ends(cluster, repaired, tmp_path, die):
    """Within Gloo's time-out, and a process that was stopped as soon as it goes on."""
    (tmp_path / "job.py").write_text(ENDLESS)
    with cluster.job(tmp_path, "horovodrun --gloo -np 3 -H h1:1,h2:1,h3:1", "job.py") as job:
        job.begun(3)
        die(cluster, "h3")
        assert job.launcher.wait(90) != 0, job.output
        repaired("h3")
        assert job.wait(0) != 0
        assert "Host: h" in job.output


@pytest.mark.parametrize("die", [kill_rank, kill_host, pull_cable])
def test_a_static_job_over_mpi_ends(cluster, repaired, tmp_path, die):
    """mpirun does not notice a rank that has stopped; a cable, by mpirun-keepalive.patch."""
    (tmp_path / "job.py").write_text(ENDLESS)
    with cluster.job(tmp_path, "horovodrun --mpi -np 3 -H h1:1,h2:1,h3:1", "job.py") as job:
        job.begun(3)
        # mpirun still talks to its daemons: TCP would send again for 15 minutes
        time.sleep(3)
        die(cluster, "h3")
        assert job.launcher.wait(90) != 0, job.output
        repaired("h3")
        assert job.wait(0) != 0
        assert "h3" in job.output


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_ranks_end_with_their_launcher(cluster, tmp_path, controller):
    """remote-ranks.patch"""
    (tmp_path / "job.py").write_text(ENDLESS)
    with cluster.job(tmp_path, f"horovodrun --{controller} -np 2 -H h2:1,h3:1", "job.py") as job:
        job.begun(2)
        for process in cluster.network.hosts["h1"].processes():
            process.kill()
        assert job.wait(90) != 0


class Training(elastic.Job):
    """An elastic job whose weights are those of a commit, whenever its hosts have changed."""

    def goes_on(self, ranks: int, before: int = 0) -> None:
        """Wait until that many ranks train, more often than ``before``."""
        begun = self.wait_for(elastic.BEGIN % ranks, before + ranks)[before:]
        assert {match["rank"] for match in begun} == {str(rank) for rank in range(ranks)}
        assert all(match["step"] == "0" or self.committed(match) for match in begun), self.output
        self.wait_for_more(elastic.COMMIT, 3)

    def times(self, ranks: int) -> int:
        return len(self.lines(elastic.BEGIN % ranks))


@contextlib.contextmanager
def training(cluster, directory, hosts, options):
    """An elastic job that begins with these hosts; ends it at the end of the block."""
    script(directory / "discovery", "exec cat hosts")
    elastic.set_hosts(directory, dict.fromkeys(hosts, 1))
    launcher = f"horovodrun --gloo {options} --host-discovery-script ./discovery"
    program = [elastic.SCRIPT, "--samples", "8192", "--epochs", "1000000"]
    with cluster.job(directory, launcher, *program) as started:
        job = Training(started.launcher, directory, elastic.SCRIPT)
        yield job
        (directory / "STOP").touch()
        assert started.wait(60) == 0, job.output
        (trained,) = job.lines(elastic.END)
        assert job.committed(trained), job.output


def test_an_elastic_job_does_without_a_host_that_cannot_be_reached(cluster, tmp_path):
    """elastic-unreachable.patch, and a host that is found later."""
    hosts = ("h1", "h2", "closed")
    with training(cluster, tmp_path, hosts, "-np 2 --min-np 2 --max-np 3") as job:
        job.goes_on(2)
        assert "ssh not successful for host closed" in job.output
        before = job.times(2)
        elastic.set_hosts(tmp_path, dict.fromkeys(("h1", "h2", "nowhere"), 1))
        job.goes_on(2, before)


def test_an_elastic_job_does_without_a_host_with_another_horovod(
    cluster, another_horovod, tmp_path
):
    """launch-errors.patch"""
    with training(cluster, tmp_path, ("h1", "h2", "h4"), "-np 3 --min-np 2") as job:
        job.goes_on(2)
        assert "h4 has Horovod 0.28.0 in" in job.output


def test_an_elastic_job_outlives_every_death(cluster, repaired, tmp_path):
    """ssh-keepalive.patch, silent-workers.patch"""
    options = "-np 4 --min-np 2 --max-np 4 --blacklist-cooldown-range 5 10"
    with training(cluster, tmp_path, ("h1", "h2", "h3", "h4"), options) as job:
        job.deadline += 360
        job.goes_on(4)

        kill_host(cluster, "h4")
        elastic.set_hosts(tmp_path, dict.fromkeys(("h1", "h2", "h3"), 1))
        job.goes_on(3)

        pull_cable(cluster, "h3")
        elastic.set_hosts(tmp_path, dict.fromkeys(("h1", "h2"), 1))
        job.goes_on(2)

        # one is back, and one is new
        repaired("h3")
        before = job.times(4)
        elastic.set_hosts(tmp_path, dict.fromkeys(("h1", "h2", "h3", "h5"), 1))
        job.goes_on(4, before)

        # its host is still there, and gets another rank
        stopped = rank_on(cluster, "h5")
        before = job.times(4)
        stopped.suspend()
        job.goes_on(4, before)
        # it was ended with its ssh, and would come back otherwise (remote-ranks.patch)
        assert not stopped.is_running()
