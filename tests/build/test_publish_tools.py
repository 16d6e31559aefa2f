"""Published modules in real module tools, in a shell that has nothing else."""

from __future__ import annotations

import dataclasses
import re
import subprocess

import pytest

from hvd.deliver.publish import describe, plan, store
from hvd.deliver.publish.plan import Origin
from hvd.model import site
from hvd.model.built import Modification, Software
from hvd.model.site import Modules, Use
from tests import publishing
from tests.build.module_tools import environment, show, users

TORCH = "horovod/0.28.1-torch-2.13-openmpi-4.1"
TF = "horovod/0.28.1-tf-2.21-openmpi-4.1"
#: Every character that a shell or a module's language could take for its own.
ODD = """a b "c" 'd' $HOME ${x} [exit 1] {e} \\n \\ ; # * ~ ]] ]=] --[[ % `f`"""
#: Has a tool read a module and say what is wrong with it; Environment Modules does so in a load.
SYNTAX = {"lmod": "--checkSyntax load", "tcl": "load"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    return publishing.state(tmp_path / "state", monkeypatch)


@pytest.fixture
def root(tmp_path):
    """A tree with a Horovod for PyTorch, the default, and one for TensorFlow; and a site's own."""
    machine = dataclasses.replace(
        site.load("local"), fabric={"cpu": {"FABRIC": ODD, "HAD": "the module's"}}
    )
    use = Use("node", "cpu", run=(("site-base/1", "site-mpi/4"),))
    put(tmp_path / "m", machine, use)
    return tmp_path / "m"


def put(root, machine, use) -> None:
    changes = (
        Modification("prepend", "PATH", "/opt/hvd view/bin"),
        Modification("prepend", "PATH", "/usr/bin"),
        Modification("prepend", "MANPATH", "/opt/hvd/man"),
        Modification("append", "FLAGS", "-lone", " "),
    )
    torch = publishing.pretend()
    horovodrun = torch.changes
    torch = dataclasses.replace(torch, changes=(*changes, *horovodrun))
    tensorflow = dataclasses.replace(torch, frameworks={"tensorflow": "2.21.0"}, changes=changes)
    source = Origin("local-hvd", "pip")
    wanted = [(describe.describe(each, machine, use), source) for each in (torch, tensorflow)]
    with store.locked(root):
        tree, _ = plan.make(store.read(root).tree, wanted, store.TOOLS)
        store.write(root, store.read(root), tree)
    site_modules = root.parent / "site"
    for name, variable in (("site-base/1", "BASE"), ("site-mpi/4", "MPI"), ("mpich/4", "MPICH")):
        file = site_modules / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#%Module\nsetenv {variable} {name}\n")


def use(tool, root) -> str:
    return f"module use '{root}/{tool.name}' '{root.parent}/site'"


def test_every_file_is_sound(tool, root) -> None:
    if tool.name == "lmod":
        check = f"{tool.program('check_module_tree_syntax')} --no_recursion {root}/lmod"
        done = tool.shell(f"{use(tool, root)}\n{check}\necho status=$?")
        assert "status=0" in done.stdout, done.stdout + done.stderr
    for name in (TORCH, TF):
        done = tool.shell(f"{use(tool, root)}\nmodule {SYNTAX[tool.name]} {name}\necho status=$?")
        assert "status=0" in done.stdout, done.stderr
        assert not re.search("syntax|error", done.stderr, re.IGNORECASE), done.stderr


def test_a_broken_file_is_told_from_a_sound_one(tool, root) -> None:
    """The check above finds what it looks for."""
    suffix = ".lua" if tool.name == "lmod" else ""
    broken = root.parent / "broken" / f"x/1{suffix}"
    broken.parent.mkdir(parents=True)
    broken.write_text("#%Module\nprepend-path {\n" if tool.name == "tcl" else "help([[\n")
    script = f"module use {root.parent}/broken\nmodule {SYNTAX[tool.name]} x/1\necho status=$?"
    done = tool.shell(script)
    assert "status=1" in done.stdout, done.stderr


def test_load_and_unload(tool, root) -> None:
    """What was there comes back exactly, where the module set it anew, too."""
    script = f"""
{use(tool, root)}
{show("before")}
module load horovod || exit 3
horovodrun
{show("loaded")}
module unload horovod || exit 4
{show("unloaded")}
module load {TORCH} && module purge || exit 5
{show("purged")}
"""
    had = {"HAD": "mine", "FLAGS": "-lzero", "PATH": "/home/me/bin:/usr/bin:/bin"}
    done = tool.shell(script, **had)
    assert done.returncode == 0, done.stderr
    before, loaded, unloaded, purged = (
        environment(done, mark) for mark in ("before", "loaded", "unloaded", "purged")
    )
    programs = root.parent / "state/pip/local-hvd/venv/bin"
    assert {k: v for k, v in users(loaded).items() if before.get(k) != v} == {
        "PATH": f"{programs}:/opt/hvd view/bin:{had['PATH']}",
        "MANPATH": "/opt/hvd/man:" if tool.name == "tcl" else "/opt/hvd/man::",
        "FLAGS": "-lzero -lone",
        "PYTHONNOUSERSITE": "1",
        "HVD_ACTIVE": "local-hvd-pip",
        "FABRIC": ODD,
        "HAD": "the module's",
        "BASE": "site-base/1",
        "MPI": "site-mpi/4",
    }
    assert "\nlocal-hvd\n" in done.stdout
    assert users(unloaded) == users(before)
    assert users(purged) == users(before)


def test_a_path_in_another_alphabet(tool, tmp_path) -> None:
    root = tmp_path / "m"
    machine = dataclasses.replace(site.load("local"), fabric={"cpu": {"PLACE": "/logiciel/é"}})
    put(root, machine, Use("node", "cpu"))
    done = tool.shell(f"{use(tool, root)}\nmodule load horovod\n{show('loaded')}")
    assert environment(done, "loaded")["PLACE"] == "/logiciel/é"


def test_the_sites_modules_that_were_loaded_before_stay(tool, root) -> None:
    script = f"""
{use(tool, root)}
module load site-base/1
module load horovod && module unload horovod || exit 3
{show("unloaded")}
"""
    variables = environment(tool.shell(script), "unloaded")
    assert variables["BASE"] == "site-base/1" and "MPI" not in variables


def test_conflicts(tool, tmp_path) -> None:
    """Another MPI is refused; a second Horovod, too, or Lmod swaps the two."""
    root = tmp_path / "m"
    put(root, site.load("local"), Use("node", "cpu"))
    script = f"""
{use(tool, root)}
module load mpich/4
module load horovod
echo status=$?
{show("refused")}
module purge
module load {TORCH}
module load {TF}
echo second=$?
{show("second")}
"""
    done = tool.shell(script)
    assert "status=1" in done.stdout
    assert re.search("conflict|because these module", done.stderr) and "mpich" in done.stderr
    assert "horovod" not in environment(done, "refused")["LOADEDMODULES"]
    loaded = environment(done, "second")["LOADEDMODULES"].split(":")
    assert loaded == ([TF] if tool.name == "lmod" else [TORCH])
    disabled = tool.shell(
        f"{use(tool, root)}\nmodule load {TORCH}\nmodule load {TF}\necho second=$?",
        LMOD_DISABLE_SAME_NAME_AUTOSWAP="yes",
    )
    assert "second=1" in disabled.stdout


def test_what_is_in_it_can_be_found_out(tool, root) -> None:
    facts = ("PyTorch 2.13.0", "MPI (openmpi 4.1.8)", "GPU architectures", "gcc 12.2.0")
    for words in (["help", TORCH], ["whatis", TORCH]):
        done = tool.shell(f"{use(tool, root)}\nmodule {' '.join(words)}")
        said = done.stdout + done.stderr
        assert all(fact in said for fact in facts), said
    done = tool.shell(f"{use(tool, root)}\nmodule keyword allreduce")
    assert "horovod" in done.stdout + done.stderr
    done = tool.shell(f"{use(tool, root)}\nmodule keyword nosuchword")
    assert "horovod" not in done.stdout + done.stderr
    if tool.name == "lmod":
        done = tool.shell(f"{use(tool, root)}\nmodule spider horovod; module spider {TF}")
        assert "TensorFlow 2.21.0" in done.stdout + done.stderr


def test_the_default_and_what_is_listed(tool, root) -> None:
    done = tool.shell(
        f"{use(tool, root)}\nmodule -t avail horovod\nmodule load horovod; module -t list"
    )
    said = done.stdout + done.stderr
    assert TF in said and "manifest" not in said
    assert said.strip().splitlines()[-1].startswith(TORCH) or TORCH in said.split("Currently")[-1]


def test_an_earlier_version_is_there_after_the_next(tool, root) -> None:
    """And a shell that has one loaded can unload it when others were published since."""
    script = f"""
{use(tool, root)}
{show("before")}
module load {TORCH}
rm {root}/.current && ln -s .generations/$(ls {root}/.generations | tail -n 1) {root}/.current
module load {TORCH}
module unload horovod || exit 3
{show("after")}
"""
    with store.locked(root):
        current = store.read(root)
        files = {**current.tree.files, "lmod/x/1.lua": b"", "tcl/x/1": b"#%Module\n"}
        sources = {**current.tree.sources, "lmod/x/1.lua": Origin("x", "pip")}
        name = store.write(
            root, current, dataclasses.replace(current.tree, files=files, sources=sources)
        )
        store.switch(root, current.name)
    assert name.startswith("0002")
    done = tool.shell(script)
    assert done.returncode == 0, done.stderr
    assert users(environment(done, "after")) == users(environment(done, "before"))


def test_a_hierarchy(tool, tmp_path) -> None:
    """The line that is given for the site's MPI module opens it, and unloading that closes it."""
    root = tmp_path / "m"
    machine = dataclasses.replace(site.load("local"), modules=Modules("lmod", ("compiler", "mpi")))
    done = publishing.pretend(mpi=Software("openmpi", "4.1.8"))
    module = describe.describe(done, machine, Use("node", "cpu", run=(("GCC/12", "OpenMPI/4"),)))
    with store.locked(root):
        tree, _ = plan.make(store.read(root).tree, [(module, Origin("e", "pip"))], store.TOOLS)
        store.write(root, store.read(root), tree)
    files = {"lmod": (".lua", 'family("mpi")'), "tcl": ("", "#%Module")}
    suffix, head = files[tool.name]
    directory = root / tool.name / module.directory
    for name, lines in {
        "GCC/12": ["" if suffix else head],
        "OpenMPI/4": [head, describe.unlocking(directory, tool.name)],
    }.items():
        file = tmp_path / "site" / f"{name}{suffix}"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(lines) + "\n")
    script = f"""
module use {tmp_path}/site
module load horovod; echo hidden=$?
module load GCC OpenMPI
module load horovod || exit 3
{show("loaded")}
horovodrun
module unload horovod OpenMPI
module load horovod; echo closed=$?
"""
    ended = tool.shell(script)
    assert "hidden=1" in ended.stdout and "closed=1" in ended.stdout, ended.stderr
    assert "\nlocal-hvd\n" in ended.stdout, ended.stderr
    assert "horovod/0.28.1-torch-2.13" in environment(ended, "loaded")["LOADEDMODULES"]


@pytest.mark.parametrize("tool", ["lmod"], indirect=True)
def test_tcl_modules_in_lmod(tool, root) -> None:
    """Sites run Lmod on Tcl files, too; its Tcl takes no other alphabet, though."""
    script = f"""
module use {root}/tcl {root.parent}/site
{show("before")}
module load horovod || exit 3
{show("loaded")}
module unload horovod
{show("after")}
"""
    done = tool.shell(script, HAD="mine")
    assert done.returncode == 0, done.stderr
    before, loaded, after = (environment(done, each) for each in ("before", "loaded", "after"))
    assert loaded["FABRIC"] == ODD and loaded["BASE"] == "site-base/1"
    assert loaded["HAD"] == "the module's"
    # Lmod's Tcl cannot bring back what the user had; nothing of the module stays
    before.pop("HAD")
    assert users(after) == users(before)


def test_the_tools_are_real(tool) -> None:
    done: subprocess.CompletedProcess = tool.shell("module --version")
    expected = {"lmod": r"Lua: Version 8", "tcl": r"Modules Release 5"}
    assert re.search(expected[tool.name], done.stdout + done.stderr)
