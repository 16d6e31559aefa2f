"""./hvd launch --run: the program takes the place of the command."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
from typing import Dict

import pytest

from hvd.core import paths
from hvd.launch import program
from tests.unit.launching import launch


@pytest.fixture
def stand_in(tmp_path: pathlib.Path) -> Dict[str, str]:
    """The environment with launchers on PATH that note how they were started."""
    for name in ("mpirun", "srun"):
        script = tmp_path / name
        script.write_text(
            f'#!/bin/bash\nprintf "%s|" {name} "$@" > {tmp_path}/call\n'
            f'echo "$NCCL_NET|$A|${{PYTHONPATH-none}}" >> {tmp_path}/call\n'
            'eval "$STAND_IN"\n'
        )
        script.chmod(0o755)
    return {
        **{name: os.environ[name] for name in os.environ if not name.startswith("SLURM_")},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(paths.SOURCE),
    }


def run(arguments, environ) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hvd", "launch", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_its_status_is_the_programs(stand_in, tmp_path) -> None:
    stand_in["STAND_IN"] = "echo out; echo err >&2; exit 3"
    done = run(["local-hvd", "--run", "--env", "A=b c", "--", "python", "a b.py", "$A"], stand_in)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    call = (tmp_path / "call").read_text()
    assert call == "mpirun|-np|2|-x|A=b c|python|a b.py|$A||b c|none\n"


def test_a_signal_is_the_programs(stand_in) -> None:
    stand_in["STAND_IN"] = "kill -TERM $$"
    assert run(["local-hvd", "--run", "--", "x"], stand_in).returncode == -signal.SIGTERM


def test_in_a_job_it_has_the_fabrics_variables(stand_in, tmp_path) -> None:
    stand_in["SLURM_JOB_NODELIST"] = "nid[001140-001141]"
    done = run(["perlmutter-hvd", "--nodes", "2", "--run", "--", "python", "x.py"], stand_in)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "call").read_text() == "srun|-n|8|python|x.py|AWS Libfabric||none\n"


def test_it_takes_the_callers_python_path() -> None:
    """What ./hvd needs for itself is not the program's, and what Spack set is."""
    request = launch("local-hvd")
    ours = {"PYTHONPATH": "ci", "PYTHONNOUSERSITE": "1", "HOME": "/h"}
    assert program.environment(request, ours) == {"HOME": "/h"}
    callers = {**ours, "HVD_CALLER_PYTHONPATH": "/view", "HVD_CALLER_PYTHONNOUSERSITE": ""}
    assert program.environment(request, callers) == {
        "HOME": "/h",
        "PYTHONPATH": "/view",
        "PYTHONNOUSERSITE": "",
    }


def test_the_script_hvd_keeps_the_callers_python_path(monkeypatch) -> None:
    """It is what changes them."""
    loader = importlib.machinery.SourceFileLoader("hvd_script", str(paths.ROOT / "hvd"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("hvd_script", loader))
    loader.exec_module(script)
    monkeypatch.setattr(script, "prepare", lambda files: None)
    monkeypatch.setenv("PYTHONPATH", "/view")
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    started = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    script.main()
    environ = started[0][2]
    assert environ["PYTHONPATH"] == str(paths.SOURCE)
    kept = program.environment(launch("local-hvd"), environ)
    assert kept["PYTHONPATH"] == "/view"
    assert not [name for name in kept if name.startswith(program.KEPT)]
    assert "PYTHONNOUSERSITE" not in kept
