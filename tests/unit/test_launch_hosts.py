"""Hosts: as the user names them, and as Slurm and LSF give them."""

from __future__ import annotations

import pytest

from hvd.core.errors import HvdError
from hvd.launch import hosts

MCPU = "batch5 1 h49n16 42 h50n01 42"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server[1-4]", ["server1", "server2", "server3", "server4"]),
        ("g28n14,g28n15", ["g28n14", "g28n15"]),
        ("nid[001140-001141,2]-hsn0", ["nid2-hsn0", "nid001140-hsn0", "nid001141-hsn0"]),
        ("a,b,a", ["a", "b"]),
        ("one.example.org", ["one.example.org"]),
    ],
)
def test_lists_of_hosts(text, expected) -> None:
    assert sorted(hosts.named(text)) == sorted(expected)


@pytest.mark.parametrize("text", ["", "server[1-", "a b", "server1:4", "@all", "a,,@b"])
def test_what_is_no_list_of_hosts(text) -> None:
    with pytest.raises(HvdError, match="--hosts") as caught:
        hosts.named(text)
    assert "--ranks-per-node" in caught.value.remedy


def test_a_slurm_job() -> None:
    environ = {"SLURM_JOB_NODELIST": "nid[001140-001141]"}
    assert hosts.of_job("slurm", False, environ) == ["nid001140", "nid001141"]
    assert hosts.of_job("slurm", False, {}) is None
    assert hosts.of_job("none", False, environ) is None
    with pytest.raises(HvdError, match="SLURM_JOB_NODELIST: 'nid") as caught:
        hosts.of_job("slurm", False, {"SLURM_JOB_NODELIST": "nid[1-"})
    assert caught.value.remedy


def test_an_lsf_job_without_its_launch_node(tmp_path) -> None:
    assert hosts.of_job("lsf", True, {"LSB_MCPU_HOSTS": MCPU}) == ["h49n16", "h50n01"]
    assert hosts.of_job("lsf", False, {"LSB_MCPU_HOSTS": MCPU})[0] == "batch5"
    file = tmp_path / "hosts"
    file.write_text("batch5\n" + "h49n16\n" * 42 + "h50n01\n" * 42)
    found = hosts.of_job("lsf", True, {"LSB_DJOB_HOSTFILE": str(file), "LSB_MCPU_HOSTS": "x 1"})
    assert found == ["h49n16", "h50n01"]
    assert hosts.of_job("lsf", True, {}) is None


def test_a_hostfile_that_is_not_there() -> None:
    with pytest.raises(HvdError, match="LSB_DJOB_HOSTFILE: /no/file") as caught:
        hosts.of_job("lsf", True, {"LSB_DJOB_HOSTFILE": "/no/file"})
    assert caught.value.remedy
