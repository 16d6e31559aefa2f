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
from hvd.launch import start
from tests.unit.launching import TWO_NODES, launch, stand_in


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> Dict[str, str]:
    """The environment of a shell with launchers on PATH that note how they were started."""
    for name in ("mpirun", "srun"):
        stand_in(tmp_path, name, 'eval "$STAND_IN"')
    return {
        **{name: os.environ[name] for name in os.environ if not name.startswith("SLURM_")},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(paths.SOURCE),
    }


def run(arguments, environ) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hvd", "launch", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_its_status_is_the_programs(environ, tmp_path) -> None:
    environ["STAND_IN"] = "echo out $A; echo err >&2; exit 3"
    done = run(["local-hvd", "--run", "--env", "A=b c", "--", "python", "a b.py", "$A"], environ)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out b c\n", "err\n")
    call = (tmp_path / "calls").read_text()
    assert call == "mpirun|-np|2|-x|A=b c|python|a b.py|$A|||none\n"


def test_a_signal_is_the_programs(environ) -> None:
    environ["STAND_IN"] = "kill -TERM $$"
    assert run(["local-hvd", "--run", "--", "x"], environ).returncode == -signal.SIGTERM


def test_in_a_job_it_has_the_fabrics_variables(environ, tmp_path) -> None:
    environ["SLURM_JOB_NODELIST"] = TWO_NODES
    done = run(["perlmutter-hvd", "--nodes", "2", "--run", "--", "python", "x.py"], environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text() == "srun|-n|8|python|x.py|AWS Libfabric||none\n"


@pytest.mark.parametrize(
    "callers", [{}, {"PYTHONPATH": "/view", "PYTHONNOUSERSITE": ""}, {"PYTHONPATH": "/view"}]
)
def test_it_has_the_callers_python_path(callers) -> None:
    """And not what ./hvd sets for itself."""
    ours = {"PYTHONPATH": "ci", "PYTHONNOUSERSITE": "1", "HOME": "/h"}
    kept = {f"{start.KEPT}{name}": value for name, value in callers.items()}
    found = start.environment(launch("local-hvd"), {**ours, **kept})
    assert found == {"HOME": "/h", **callers}


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
    kept = start.environment(launch("local-hvd"), environ)
    assert kept["PYTHONPATH"] == "/view"
    assert not [name for name in kept if name.startswith(start.KEPT)]
    assert "PYTHONNOUSERSITE" not in kept
