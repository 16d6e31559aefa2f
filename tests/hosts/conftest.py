"""Hosts that tests share."""

from __future__ import annotations

import os
import pathlib

import pytest

from tests import needs
from tests.checkout import run
from tests.hosts.jobs import Cluster
from tests.hosts.network import Network


@pytest.fixture(scope="session")
def cluster(built_horovod, tmp_path_factory):
    """Five hosts, whose interfaces have the same name."""
    yield from _cluster(built_horovod, tmp_path_factory, ["eth0"] * 5)


@pytest.fixture(scope="session")
def cloud(built_horovod, tmp_path_factory):
    """Three hosts, each of which has its own name for its interface."""
    yield from _cluster(built_horovod, tmp_path_factory, ["eth1", "eth2", "eth3"])


@pytest.fixture(scope="session")
def slow_cluster(built_horovod, tmp_path_factory):
    """Two hosts between which packets take 5 ms, and one in a hundred is lost."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("no TAP device can be made here: /dev/net/tun")
    for slow in _cluster(built_horovod, tmp_path_factory, ["eth0"] * 2):
        slow.network.slow_down("h2", milliseconds=5, percent=1)
        yield slow


@pytest.fixture
def another_horovod(cluster, tmp_path_factory):
    """h4 has a Horovod of another version than the others."""
    code = "import horovod, sys; print(horovod.__file__, horovod.__version__)"
    command = cluster.network.hosts["h4"].command(pathlib.Path("/"), cluster.target.python)
    place, version = run([*command, "-c", code], env=cluster.environment()).split()
    other = tmp_path_factory.mktemp("horovod") / "__init__.py"
    other.write_text(pathlib.Path(place).read_text().replace(version, "0.28.0"))
    cluster.network.as_root("h4", "mount", "--bind", other, place)
    yield
    cluster.network.as_root("h4", "umount", place)


def _cluster(built, tmp_path_factory, interfaces):
    needs.namespaces()
    network = Network(tmp_path_factory.mktemp("network"), interfaces)
    try:
        yield Cluster(network, built.target)
    finally:
        network.stop()
