"""Functions run with the Horovod that was built with the security patches."""

import json
import subprocess

import pytest

from tests.checkout import run, script

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


# without `if __name__ == "__main__"`, as whatever starts processes must not run this again
print("begun", flush=True)
options = json.loads(sys.argv[1])
print(json.dumps(horovod.run(work, args=(40, 2), num_proc=2, **options)))
"""
ELASTIC = {
    "use_gloo": True,
    "min_num_proc": 2,
    "max_num_proc": 2,
    "host_discovery_script": "./hosts",
    "network_interfaces": ["lo"],
}


@pytest.mark.parametrize(
    "options", [{"use_gloo": True}, {"use_mpi": True}, ELASTIC], ids=["gloo", "mpi", "elastic"]
)
def test_a_function_runs_on_two_ranks(built_horovod, tmp_path, options):
    """cve-2026-31234.patch: the function and the results pass through the signed store.

    launcher-processes.patch: the script runs once.
    """
    (tmp_path / "job.py").write_text(FUNCTION)
    script(tmp_path / "hosts", "echo localhost:2")
    target = built_horovod.target
    surroundings = {"cwd": tmp_path, "env": target.environment, "timeout": 300}
    command = [target.python, "job.py", json.dumps(options)]
    output = run(command, stdin=subprocess.DEVNULL, **surroundings)
    assert "[[0, 2, [3.0, 3.0], 42], [1, 2, [3.0, 3.0], 42]]" in output
    assert output.splitlines().count("begun") == 1
