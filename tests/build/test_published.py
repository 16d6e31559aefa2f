"""What was really built, published, and used in a shell that has the module tool and no more."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
from typing import Dict

import pytest

from hvd.deliver.publish import store
from hvd.smoke import launch
from tests.build.conftest import Built
from tests.build.module_tools import ModuleTool, environment, show, users

#: Sums over the ranks, and says what it was done with.
PROGRAM = """\
import sys, torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(1000) * (hvd.rank() + 1), op=hvd.Sum)
assert torch.equal(total, torch.full((1000,), 3.0)), total[:3]
assert hvd.mpi_enabled() and hvd.gloo_built()
# at once: two ranks share one pipe, and a line in parts may be split
print(f"rank {hvd.rank()} of {hvd.size()} python {sys.executable}\\n", end="", flush=True)
hvd.shutdown()
"""


def settings(built: Built) -> Dict[str, str]:
    """What MPI needs in a container with fewer cores than ranks; the rest is the module's."""
    bare = dataclasses.replace(built.target, environment={})
    every = launch.environment(launch.LAUNCHERS[0], bare, timeout=180)
    return {name: value for name, value in every.items() if not name.startswith("HOROVOD_")}


@dataclasses.dataclass(frozen=True)
class Published:
    built: Built
    root: pathlib.Path
    name: str

    def use(self, tool: ModuleTool) -> str:
        return f"module use {shlex.quote(str(self.root / tool.name))}"


def publish(built: Built, root: pathlib.Path) -> Published:
    arguments = ["publish", "local-hvd", "--root", root, "--tool", "both"]
    done = built.checkout.hvd(*arguments, "--engine", built.engine)
    assert done.returncode == 0, done.stdout
    (name,) = set(re.findall(r"module load (\S+)", done.stdout))
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
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    script = f"""
{published.use(tool)}
{show("before")}
module load horovod || exit 3
{show("loaded")}
for name in python horovodrun mpirun; do echo $name is $(command -v $name); done
horovodrun --version || exit 4
mpirun -np 2 python {program} || exit 5
module purge
{show("after")}
"""
    done = tool.shell(script, TMPDIR=str(tmp_path), **settings(published.built))
    assert done.returncode == 0, done.stdout + done.stderr
    before, loaded, after = (environment(done, each) for each in ("before", "loaded", "after"))
    assert users(after) == users(before)
    assert published.name in loaded["LOADEDMODULES"]
    assert not any("SPACK" in name for name in loaded)
    target = published.built.target.environment
    for name in ("python", "mpirun", "horovodrun"):
        (place,) = re.findall(rf"^{name} is (\S+)$", done.stdout, re.MULTILINE)
        if name == "horovodrun" and published.built.engine == "spack":
            # the environment's is a copy in its view
            assert re.search(r"/py-horovod-0\.28\.1-\w+/bin/horovodrun$", place)
        else:
            assert pathlib.Path(place).resolve() == which(name, target), name
    ranks = sorted(re.findall(r"^rank (\d) of 2 python (\S+)$", done.stdout, re.MULTILINE))
    assert [rank for rank, _ in ranks] == ["0", "1"], done.stdout
    assert "\n0.28.1\n" in done.stdout


def which(name: str, variables: Dict[str, str]) -> pathlib.Path:
    script = f"command -v {name}"
    found = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True)
    return pathlib.Path(found.stdout.strip()).resolve()


def test_it_is_what_spack_load_gives(by_spack, tool) -> None:
    """The same lists in the same order and the same values, but for what is Spack's own."""
    root = by_spack.built.checkout.root
    load = f"spack -e {root}/environments/local-hvd load --sh py-horovod"
    base = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = ["bash", "--noprofile", "--norc", "-c"]
    said = subprocess.run(
        [*command, f". {root}/.hvd/setup-env.sh && {load}"],
        env=base, capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 0 and "export PYTHONPATH" in said.stdout, said.stderr
    script = f"{show('before')}\n{said.stdout}\n{show('loaded')}"
    by_load = subprocess.run([*command, script], env=base, capture_output=True, text=True)
    expected = changes(by_load)
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


def test_what_was_built_since_is_not_what_is_published(built_by_pip, tmp_path) -> None:
    """A build that is not whole is refused; so is a name that the other engine has."""
    stamp = built_by_pip.checkout.root / ".hvd/pip/local-hvd/stamp"
    text = stamp.read_text()
    stamp.unlink()
    try:
        arguments = ["publish", "--root", tmp_path / "m", "--tool", "tcl", "--engine", "pip"]
        done = built_by_pip.checkout.hvd(*arguments)
    finally:
        stamp.write_text(text)
    assert done.returncode == 2 and "has changed since pip built it" in done.stdout
    assert not (tmp_path / "m").exists()


def test_the_name_that_the_other_engine_has(by_spack, built_by_pip) -> None:
    arguments = ["publish", "--root", by_spack.root, "--tool", "both", "--engine", "pip"]
    before = (by_spack.root / store.CURRENT / store.MANIFEST).read_text()
    done = built_by_pip.checkout.hvd(*arguments)
    assert (
        done.returncode == 2 and "the name of another module, of local-hvd (spack)" in done.stdout
    )
    assert (by_spack.root / store.CURRENT / store.MANIFEST).read_text() == before
    assert json.loads(before)["parent"] == ""
