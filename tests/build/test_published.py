"""What was really built, published, and used in a shell that has the module tool and no more."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from typing import Dict

import pytest

from hvd.smoke import launch
from tests.build.module_tools import ModuleTool, environment, show, users
from tests.ranks import PROGRAM, said
from tests.real_builds import Built

pytestmark = pytest.mark.xdist_group("built")


@dataclasses.dataclass(frozen=True)
class Published:
    built: Built
    root: pathlib.Path
    name: str

    def use(self, tool: ModuleTool) -> str:
        return f"module use {shlex.quote(str(self.root / tool.name))}"


def publish(built: Built, root: pathlib.Path) -> Published:
    output = built.hvd("publish", "--root", root, "--tool", "both")
    (name,) = set(re.findall(r"module load (\S+)", output))
    return Published(built, root, name)


@pytest.fixture(scope="module")
def by_pip(built_by_pip, tmp_path_factory) -> Published:
    return publish(built_by_pip, tmp_path_factory.mktemp("pip") / "m")


@pytest.fixture(scope="module")
def by_spack(built_by_spack, tmp_path_factory) -> Published:
    return publish(built_by_spack, tmp_path_factory.mktemp("spack") / "m")


@pytest.fixture(params=["pip", "spack"])
def published(request) -> Published:
    return request.getfixturevalue(f"by_{request.param}")


def test_two_ranks_agree_and_the_shell_is_what_it_was(published, tool, tmp_path) -> None:
    """Acceptance: module load, two ranks by the mpirun on PATH, module purge."""
    (tmp_path / "program.py").write_text(PROGRAM)
    script = f"""
{published.use(tool)}
{show("before")}
module load horovod || exit 3
{show("loaded")}
for name in python horovodrun mpirun; do echo $name is $(command -v $name); done
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
    assert published.name in loaded["LOADEDMODULES"]
    assert not any("SPACK" in name for name in loaded)
    path = published.built.target.environment["PATH"]
    for name in ("python", "mpirun", "horovodrun"):
        (place,) = re.findall(rf"^{name} is (\S+)$", done.stdout, re.MULTILINE)
        if name == "horovodrun" and published.built.engine == "spack":
            # the environment's is a copy in its view
            assert re.search(r"/py-horovod-0\.28\.1-\w+/bin/horovodrun$", place)
        else:
            wanted = pathlib.Path(shutil.which(name, path=path))
            assert pathlib.Path(place).resolve() == wanted.resolve(), name
    assert said(done.stdout) == [(0, 2), (1, 2)], done.stdout
    assert "\n0.28.1\n" in done.stdout


def test_it_is_what_spack_load_gives(by_spack, tool) -> None:
    """The same lists in the same order and the same values, but for what is Spack's own."""
    root = by_spack.built.checkout.root
    load = f"spack -e {root}/environments/local-hvd load --sh py-horovod"
    base = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}

    def bash(script):
        command = ["bash", "--noprofile", "--norc", "-c", script]
        return subprocess.run(command, env=base, capture_output=True, text=True)

    lines = bash(f". {root}/.hvd/setup-env.sh && {load}")
    assert lines.returncode == 0 and "export PYTHONPATH" in lines.stdout, lines.stderr
    expected = changes(bash(f"{show('before')}\n{lines.stdout}\n{show('loaded')}"))
    assert expected.pop("SPACK_LOADED_HASHES")
    script = f"{by_spack.use(tool)}\n{show('before')}\nmodule load horovod\n{show('loaded')}"
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


def test_both_engines_give_the_same_to_users(by_pip, by_spack) -> None:
    """One name and the same facts: only the places and who built it are others."""
    assert by_pip.name == by_spack.name
    lines = []
    for each in (by_pip, by_spack):
        text = (each.root / "tcl" / each.name).read_text().splitlines()
        kept = [line for line in text if not re.match("(prepend|append)-path|pushenv", line)]
        lines.append([line for line in kept if "Built by" not in line])
    assert lines[0] == lines[1]
