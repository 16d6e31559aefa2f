"""What was really built, published, and used in a shell that has the module tool and no more."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Dict

import pytest

from hvd.smoke import launch
from tests.build.module_tools import environment, show, users
from tests.ranks import PROGRAM, said

pytestmark = pytest.mark.xdist_group("built")


def use(built, tool, root) -> str:
    """Publish a build below ``root``; the line that lets a shell find its module."""
    built.hvd("publish", "--root", root, "--tool", tool.name)
    return f"module use {root}/{tool.name}"


def test_two_ranks_agree_and_the_shell_is_what_it_was(built, tool, tmp_path) -> None:
    """Acceptance: module load, two ranks by the mpirun on PATH, module purge."""
    (tmp_path / "program.py").write_text(PROGRAM)
    script = f"""
{use(built, tool, tmp_path / "m")}
{show("before")}
module load horovod || exit 3
{show("loaded")}
horovodrun --version || exit 4
mpirun -np 2 python {tmp_path}/program.py || exit 5
module purge
{show("after")}
"""
    allowed = {**launch.small_machine(), "OMP_NUM_THREADS": "1"}
    done = tool.shell(script, TMPDIR=str(tmp_path), **allowed)
    assert done.returncode == 0, done.stdout + done.stderr
    before, loaded, after = (environment(done, each) for each in ("before", "loaded", "after"))
    assert users(after) == users(before)
    assert "horovod/0.28.1-torch" in loaded["LOADEDMODULES"]
    assert not any("SPACK" in name for name in loaded)
    assert said(done.stdout) == [(0, 2), (1, 2)], done.stdout
    assert "\n0.28.1\n" in done.stdout


def test_it_is_what_spack_load_gives(built_by_spack, tool, tmp_path) -> None:
    """The same lists in the same order and the same values, but for what is Spack's own."""
    root = built_by_spack.checkout.root
    load = f"spack -e {root}/environments/local-hvd load --sh py-horovod"
    base = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}

    def bash(script):
        command = ["bash", "--noprofile", "--norc", "-c", script]
        return subprocess.run(command, env=base, capture_output=True, text=True)

    lines = bash(f". {root}/.hvd/setup-env.sh && {load}")
    assert lines.returncode == 0 and "export PYTHONPATH" in lines.stdout, lines.stderr
    expected = changes(bash(f"{show('before')}\n{lines.stdout}\n{show('loaded')}"))
    assert expected.pop("SPACK_LOADED_HASHES")
    line = use(built_by_spack, tool, tmp_path / "m")
    script = f"{line}\n{show('before')}\nmodule load horovod\n{show('loaded')}"
    found = changes(tool.shell(script))
    assert found.pop("PYTHONNOUSERSITE") == ["1"]
    assert found.pop("HVD_ACTIVE") == ["local-hvd-spack"]
    assert found == expected


def changes(done) -> Dict[str, list]:
    """The variables that a load changed, as lists of entries.

    Without those that the system has, some of which `spack load` puts before all others, and
    without Spack's own place, which is on PATH of its shell.
    """
    before, loaded = environment(done, "before"), users(environment(done, "loaded"))
    found = {}
    for name, value in loaded.items():
        if before.get(name) != value:
            entries = [os.path.normpath(entry) for entry in value.split(":") if entry]
            kept = [e for e in entries if not re.match(r"/(usr/)?(s?bin|share|lib)(/|$)", e)]
            found[name] = [e for e in dict.fromkeys(kept) if not re.search(r"/spack/\w+/bin$", e)]
    return {name: entries for name, entries in found.items() if entries}
