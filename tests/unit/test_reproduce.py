"""A failed job says how to repeat it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from hvd.ci import reproduce
from hvd.core import paths
from hvd.host import machine

COMMIT = subprocess.run(
    ["git", "-C", paths.ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
).stdout.strip()


def test_a_command_by_hand_is_not_repeated():
    assert reproduce.lines(["run"], {}) == []


SPEC = ["run", "--spec", "py-horovod@0.28.1 +mpi~gloo"]
IMAGE = {"CI_JOB_IMAGE": "docker.io/debian:12"}
PODMAN = ["podman", "run", "--rm", "-it", "-v", ".:/hvd", "-w", "/hvd", "docker.io/debian:12"]


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (SPEC, {}, ["./hvd", *SPEC]),
        # what decides what it does, and no secret
        (["run"], {"HVD_PACKAGES": "/a b"}, ["env", "HVD_PACKAGES=/a b", "./hvd", "run"]),
        (["run"], {"SPACK_SIGNING_KEY": "x", "HVD_CI_CACHE": "s3://k@x"}, ["./hvd", "run"]),
        (["test"], IMAGE, [*PODMAN, "./hvd", "test"]),
        # jobs that need artifacts
        (["ci", "rebuild", "x"], {}, ["./hvd", "build", "x", "--engine", "spack"]),
        (["ci", "smoke", "x"], {}, ["./hvd", "run", "x", "--engine", "spack"]),
    ],
)
def test_the_command_of_a_job(arguments, variables, expected):
    command, _ = reproduce.lines(arguments, {"CI": "true", **variables})
    checkout, _, rest = command.partition(": ")[2].partition(" && ")
    assert checkout == f"git checkout {COMMIT}"
    assert shlex.split(rest) == expected


def test_the_machine_is_named():
    _, where = reproduce.lines(["run"], {"CI": "true", "ImageOS": "ubuntu24", "ImageVersion": "7"})
    assert machine.describe()["os"] in where and where.endswith("runner image ubuntu24 7")


def test_in_a_root_the_command_outside_says_it(monkeypatch):
    here = {**machine.describe(), "root": "trixie"}
    monkeypatch.setattr(machine, "describe", lambda: here)
    assert reproduce.lines(["run"], {"CI": "true"}) == []
    here["root"] = "somebody's own"
    assert reproduce.lines(["run"], {"CI": "true"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["run", "no-such-hvd"], True), (["list"], False), (["run", "--no-such-option"], True)],
)
def test_it_is_said_after_a_failure_alone(monkeypatch, hvd, arguments, said):
    monkeypatch.setenv("CI", "true")
    done = hvd(*arguments)
    assert bool(done.status) == said
    assert (f"./hvd {shlex.join(arguments)}" in done.err) == said
