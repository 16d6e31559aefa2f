"""Functions and elastic jobs run with the Horovod that was built with the security patches."""

import subprocess

import pytest

FUNCTION = """
import json, sys

import cloudpickle
import horovod


def work(one, other):
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.ones(2) * (hvd.rank() + 1), op=hvd.Sum)
    return [hvd.rank(), hvd.size(), total.tolist(), one + other]


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    print(json.dumps(horovod.run(work, args=(40, 2), num_proc=2, **options)))
"""
RESULTS = "[[0, 2, [3.0, 3.0], 42], [1, 2, [3.0, 3.0], 42]]"

ELASTIC = """
import pathlib
import sys

import horovod.torch as hvd
import torch

grow = pathlib.Path(sys.argv[1])
hvd.init()
state = hvd.elastic.TorchState(model=torch.nn.Linear(1, 1), sizes=[])


@hvd.elastic.run
def train(state):
    while state.sizes.count(2) < 3:
        total = hvd.allreduce(torch.ones(1), op=hvd.Sum)
        state.sizes = [*state.sizes, int(total.item())]
        if len(state.sizes) == 3:
            grow.touch()
        state.commit()


train(state)
print("sizes", hvd.rank(), sorted(set(state.sizes)), flush=True)
"""


def run(built, directory, *command):
    target = built.target
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env=target.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        '{"use_gloo": true}',
        '{"use_mpi": true}',
        '{"use_gloo": true, "min_num_proc": 2, "max_num_proc": 2, '
        '"host_discovery_script": "./hosts", "network_interfaces": ["lo"]}',
    ],
    ids=["gloo", "mpi", "elastic"],
)
def test_a_function_runs_on_two_ranks(built_horovod, tmp_path, options):
    """cve-2026-31234.patch: the function and the results pass through the signed store."""
    (tmp_path / "job.py").write_text(FUNCTION)
    hosts(tmp_path, "echo localhost:2")
    output = run(built_horovod, tmp_path, built_horovod.target.python, "job.py", options)
    assert RESULTS in output


def test_an_elastic_job_grows(built_horovod, tmp_path):
    """cve-2024-10190.patch: a worker registers, and is told of a second slot."""
    (tmp_path / "train.py").write_text(ELASTIC)
    hosts(tmp_path, "if [ -e grow ]; then echo localhost:2; else echo localhost:1; fi")
    command = "horovodrun --gloo -np 1 --min-np 1 --max-np 2 --network-interfaces lo"
    script = ["--host-discovery-script", "./hosts", built_horovod.target.python, "train.py"]
    output = run(built_horovod, tmp_path, *command.split(), *script, tmp_path / "grow")
    assert "sizes 0 [1, 2]" in output and "sizes 1 [1, 2]" in output, output


def hosts(directory, script):
    """Write the script that tells an elastic job of its hosts."""
    path = directory / "hosts"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
