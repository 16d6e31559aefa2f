"""Hosts: as the user names them, and as Slurm, LSF and PBS give them."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.core.errors import HvdError
from hvd.launch import hosts
from hvd.model import site

MCPU = {"LSB_MCPU_HOSTS": "batch5 1 h49n16 42 h50n01 42"}
SUMMIT = next(iter(site.load("summit").partitions.values()))
NO_LAUNCH_NODE = dataclasses.replace(SUMMIT, lsf=dataclasses.replace(SUMMIT.lsf, launch_slots=0))


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
    with pytest.raises(HvdError, match="--hosts"):
        hosts.named(text)


@pytest.mark.parametrize(
    ("scheduler", "partition", "environ", "expected"),
    [
        ("slurm", SUMMIT, {"SLURM_JOB_NODELIST": "a[01-02]"}, ["a01", "a02"]),
        ("slurm", SUMMIT, {}, None),
        ("none", SUMMIT, {"SLURM_JOB_NODELIST": "a"}, None),
        ("lsf", SUMMIT, MCPU, ["h49n16", "h50n01"]),
        ("lsf", NO_LAUNCH_NODE, MCPU, ["batch5", "h49n16", "h50n01"]),
        ("lsf", SUMMIT, {}, None),
        ("pbs", SUMMIT, {}, None),
    ],
)
def test_the_hosts_of_a_job(scheduler, partition, environ, expected) -> None:
    assert hosts.of_job(scheduler, partition, environ) == expected


def test_a_job_with_a_file_that_has_a_line_for_each_slot(tmp_path) -> None:
    file = tmp_path / "hosts"
    file.write_text("batch5\n" + "h49n16\n" * 42 + "h50n01\n" * 42)
    environ = {"LSB_DJOB_HOSTFILE": str(file), "LSB_MCPU_HOSTS": "x 1"}
    assert hosts.of_job("lsf", SUMMIT, environ) == ["h49n16", "h50n01"]
    file.write_text("x3001c0s1b0n0.hsn\nx3001c0s1b0n0.hsn\nx3001c0s7b0n0.hsn\n")
    found = hosts.of_job("pbs", SUMMIT, {"PBS_NODEFILE": str(file)})
    assert found == ["x3001c0s1b0n0.hsn", "x3001c0s7b0n0.hsn"]


@pytest.mark.parametrize(
    ("scheduler", "variable", "value"),
    [
        ("slurm", "SLURM_JOB_NODELIST", "nid[1-"),
        ("lsf", "LSB_DJOB_HOSTFILE", "/no/file"),
        ("pbs", "PBS_NODEFILE", "/no/file"),
    ],
)
def test_hosts_that_cannot_be_read(scheduler, variable, value) -> None:
    with pytest.raises(HvdError, match=variable):
        hosts.of_job(scheduler, SUMMIT, {variable: value})
