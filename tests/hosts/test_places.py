"""Jobs on several hosts: who is where, over which network, and what is refused."""

from __future__ import annotations

import contextlib
import pathlib
import stat

import psutil
import pytest

from tests.checkout import script
from tests.hosts.jobs import ENDLESS, PLACES

#: Hosts have one to two ranks, and the third has none of local rank 1.
HOSTS = "h1:2,h2:1,h3:1"
WANTED = {
    "rank-0-of-4": ["h1", 0, 2, 0, 3],
    "rank-1-of-4": ["h1", 1, 2, 0, 1],
    "rank-2-of-4": ["h2", 0, 1, 1, 3],
    "rank-3-of-4": ["h3", 0, 1, 2, 3],
}


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_ranks_are_where_the_list_of_hosts_says(cluster, tmp_path, controller):
    assert cluster.places(tmp_path, f"horovodrun --{controller} -np 4 -H {HOSTS}") == WANTED


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_ranks_are_where_the_host_file_says(cluster, tmp_path, controller):
    lines = [f"{host} slots={slots}\n" for host, slots in (w.split(":") for w in HOSTS.split(","))]
    (tmp_path / "hosts").write_text("".join(lines))
    launcher = f"horovodrun --{controller} -np 4 --hostfile {tmp_path}/hosts"
    assert cluster.places(tmp_path, launcher) == WANTED


def test_the_first_host_may_be_without_ranks(cluster, tmp_path):
    wanted = {"rank-0-of-2": ["h2", 0, 2, 0, 1], "rank-1-of-2": ["h2", 1, 2, 0, 1]}
    assert cluster.places(tmp_path, "horovodrun --gloo -np 2 -H h2:2") == wanted


@pytest.mark.parametrize("named", ["", "--network-interfaces eth1,eth2,eth3"])
@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_hosts_may_name_their_interfaces_differently(cloud, tmp_path, controller, named):
    """nics.patch"""
    launcher = f"horovodrun --{controller} -np 4 {named} -H {HOSTS}"
    assert cloud.places(tmp_path, launcher) == WANTED


def test_the_launcher_needs_an_interface_of_the_job(cloud, tmp_path):
    """nics.patch"""
    job = cloud.run(tmp_path, "horovodrun --gloo -np 2 -H h2:2", PLACES)
    assert job.launcher.returncode != 0
    assert "h1 has no network interface eth2 with an IPv4 address" in job.output


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_names_may_be_of_ipv6_addresses(cluster, tmp_path, controller):
    launcher = f"horovodrun --{controller} -np 2 -H h1-ipv6:1,h2-ipv6:1"
    wanted = {"rank-0-of-2": ["h1", 0, 1, 0, 2], "rank-1-of-2": ["h2", 0, 1, 1, 2]}
    assert cluster.places(tmp_path, launcher) == wanted


@pytest.mark.parametrize("host", ["nowhere", "closed"])
@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_host_that_cannot_be_reached_is_named(cluster, tmp_path, controller, host):
    """``nowhere`` has no address, and ``closed`` no sshd."""
    job = cluster.run(tmp_path, f"horovodrun --{controller} -np 2 -H h1:1,{host}:1", PLACES)
    assert job.launcher.returncode != 0
    assert f"ssh not successful for host {host}" in job.output
    assert not list(tmp_path.glob("rank-*"))


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_host_with_another_horovod_is_named(cluster, another_horovod, tmp_path, controller):
    """launch-errors.patch"""
    job = cluster.run(tmp_path, f"horovodrun --{controller} -np 2 -H h1:1,h4:1", PLACES)
    assert job.launcher.returncode != 0
    assert "h4 has Horovod 0.28.0 in" in job.output


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_network_may_be_slow_and_lose_packets(slow_cluster, tmp_path, controller):
    wanted = {"rank-0-of-2": ["h1", 0, 1, 0, 2], "rank-1-of-2": ["h2", 0, 1, 1, 2]}
    launcher = f"horovodrun --{controller} -np 2 -H h1:1,h2:1"
    assert slow_cluster.places(tmp_path, launcher) == wanted


@pytest.fixture
def narrow_cluster(cluster):
    """What h2 sends takes its time: 20 Mbit/s."""
    shaped = "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "16kb", "latency", "100ms"
    cluster.network.as_root("h2", "tc", "qdisc", "add", *shaped)
    yield cluster
    cluster.network.as_root("h2", "tc", "qdisc", "delete", *shaped)


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_network_may_be_narrow(narrow_cluster, tmp_path, controller):
    launcher = f"horovodrun --{controller} -np 2 -H h1:1,h2:1"
    assert len(narrow_cluster.places(tmp_path, launcher)) == 2


@pytest.mark.parametrize("controller", ["gloo", "mpi", "elastic"])
def test_nobody_else_sees_the_key(cluster, tmp_path, controller):
    """Neither in a command line, nor in an environment that others may read."""
    (tmp_path / "job.py").write_text(ENDLESS)
    hosts = ["h1:1", "h2:1", "h3:1"]
    script(tmp_path / "discovery", *(f"echo {host}" for host in hosts))
    options = f"--{controller} -H {','.join(hosts)}"
    if controller == "elastic":
        options = "--gloo --min-np 3 --host-discovery-script ./discovery"
    with cluster.job(tmp_path, f"horovodrun -np 3 {options}", "job.py") as job:
        job.begun(3)
        keys, words = set(), []
        for process in cluster.network.processes():
            with contextlib.suppress(psutil.Error):
                words += process.cmdline()
                keys.add(process.environ().get("_HOROVOD_RENDEZVOUS_KEY", ""))
                mode = (pathlib.Path("/proc") / str(process.pid) / "environ").stat().st_mode
                assert stat.S_IMODE(mode) == 0o400, process
        keys.discard("")
        # that of this job; over MPI there is no rendezvous
        assert bool(keys) == (controller != "mpi")
        assert not [word for word in words for key in keys if key in word]
