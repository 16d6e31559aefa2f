"""What was really built, published, and used in a shell that has the module tool and no more."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Dict

from hvd.smoke import launch
from tests.build.module_tools import environment, show, users
from tests.ranks import PROGRAM, said


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
    lines = f"""
. {root}/.hvd/setup-env.sh
{show("before")}
eval "$(spack -e {root}/environments/local-hvd load --sh py-horovod)" || exit 3
{show("loaded")}
"""
    base = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = ["bash", "--noprofile", "--norc", "-c", lines]
    expected = changes(subprocess.run(command, env=base, capture_output=True, text=True))
    assert expected.pop("SPACK_LOADED_HASHES") and "PYTHONPATH" in expected
    line = use(built_by_spack, tool, tmp_path / "m")
    found = changes(tool.shell(f"{line}\n{show('before')}\nmodule load horovod\n{show('loaded')}"))
    assert found.pop("PYTHONNOUSERSITE") == ["1"]
    assert found.pop("HVD_ACTIVE") == ["local-hvd-spack"]
    assert found == expected


def changes(done) -> Dict[str, list]:
    """The variables that a load changed, as lists; without the system's and Spack's own places."""
    before, loaded = environment(done, "before"), users(environment(done, "loaded"))
    system = re.compile(r"(/usr)?/(s?bin|share|lib)(/.*)?|.*/spack/\w+/bin")
    found = {}
    for name in (name for name in loaded if before.get(name) != loaded[name]):
        entries = [os.path.normpath(entry) for entry in loaded[name].split(":") if entry]
        found[name] = [e for e in dict.fromkeys(entries) if not system.fullmatch(e)]
    return {name: entries for name, entries in found.items() if entries}
