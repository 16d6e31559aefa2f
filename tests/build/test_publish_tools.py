"""Published modules in real module tools, in a shell that has nothing else."""

from __future__ import annotations

import dataclasses
import glob
import re
import subprocess

import pytest

from hvd.deliver.publish import module as modulefile
from hvd.deliver.publish import plan, store
from hvd.deliver.publish.plan import LANGUAGES, Origin
from hvd.model import site
from hvd.model.built import Modification, Software
from hvd.model.site import Modules, Use
from hvd.rehearse import namespace
from tests import needs, publishing
from tests.build.module_tools import environment, show, users

TORCH = "horovod/0.28.1-torch-2.13-openmpi-4.1"
TF = "horovod/0.28.1-tf-2.21-openmpi-4.1"
#: Every character that a shell or a module's language could take for its own.
ODD = """a b "c" 'd' $HOME ${x} [exit 1] {e} \\n \\ ; # * ~ ]] ]=] --[[ % `f`"""
#: Has a tool read a module and say what is wrong with it; Environment Modules does so in a load.
SYNTAX = {"lmod": "--checkSyntax load", "tcl": "load"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))


@pytest.fixture
def root(tmp_path):
    """A tree with a Horovod for PyTorch, the default, and one for TensorFlow; and a site's own."""
    fabric = {"cpu": {"FABRIC": ODD, "HAD": "the module's"}}
    machine = dataclasses.replace(site.load("local"), fabric=fabric)
    put(tmp_path / "m", machine, Use("node", "cpu", run=(("site-base/1", "site-mpi/4"),)))
    return tmp_path / "m"


def put(root, machine, use) -> None:
    changes = (
        Modification("prepend", "PATH", "/opt/hvd view/bin"),
        Modification("prepend", "PATH", "/usr/bin"),
        Modification("prepend", "MANPATH", "/opt/hvd/man"),
        Modification("append", "FLAGS", "-lone", " "),
    )
    torch = publishing.pretend()
    torch = dataclasses.replace(torch, changes=(*changes, *torch.changes))
    tensorflow = dataclasses.replace(torch, frameworks={"tensorflow": "2.21.0"}, changes=changes)
    write(root, *(modulefile.describe(each, machine, use) for each in (torch, tensorflow)))
    for name, variable in (("site-base/1", "BASE"), ("site-mpi/4", "MPI"), ("mpich/4", "MPICH")):
        module(root.parent / "site" / name, "#%Module", f"setenv {variable} {name}")


def write(root, *modules) -> None:
    wanted = [(each, Origin("local-hvd", "pip")) for each in modules]
    with store.locked(root):
        tree, _ = plan.make(store.read(root).tree, wanted, LANGUAGES)
        store.write(root, store.read(root), tree)


def module(file, *lines) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def shell(tool, tmp_path):
    """A function that runs lines in a shell where the modules of `root` and the site's are."""

    def run(lines, **variables):
        use = f"module use '{tmp_path}/m/{tool.name}' '{tmp_path}/site'"
        return tool.shell(f"{use}\n{lines}", **variables)

    return run


def test_every_file_is_sound(tool, shell, root) -> None:
    if tool.name == "lmod":
        check = f"{tool.program('check_module_tree_syntax')} --no_recursion {root}/lmod"
        done = shell(f"{check}\necho status=$?")
        assert "status=0" in done.stdout, done.stdout + done.stderr
    for name in (TORCH, TF):
        done = shell(f"module {SYNTAX[tool.name]} {name}\necho status=$?")
        assert "status=0" in done.stdout, done.stderr
        assert not re.search("syntax|error", done.stderr, re.IGNORECASE), done.stderr


def test_a_broken_file_is_told_from_a_sound_one(tool, shell, tmp_path) -> None:
    """The check above finds what it looks for."""
    suffix, lines = {
        "lmod": (".lua", ["help([["]),
        "tcl": ("", ["#%Module", "prepend-path {"]),
    }[tool.name]
    module(tmp_path / "broken" / f"x/1{suffix}", *lines)
    script = f"module use {tmp_path}/broken\nmodule {SYNTAX[tool.name]} x/1\necho status=$?"
    done = shell(script)
    assert "status=1" in done.stdout, done.stderr


def test_load_and_unload(tool, shell, root) -> None:
    """What was there comes back exactly, where the module set it anew, too."""
    script = f"""
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
    done = shell(script, **had)
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


def test_a_path_in_another_alphabet(shell, tmp_path) -> None:
    machine = dataclasses.replace(site.load("local"), fabric={"cpu": {"PLACE": "/logiciel/é"}})
    put(tmp_path / "m", machine, Use("node", "cpu"))
    done = shell(f"module load horovod\n{show('loaded')}")
    assert environment(done, "loaded")["PLACE"] == "/logiciel/é"


def test_the_sites_modules_that_were_loaded_before_stay(shell, root) -> None:
    done = shell(f"""
module load site-base/1
module load horovod && module unload horovod || exit 3
{show("unloaded")}
""")
    variables = environment(done, "unloaded")
    assert variables["BASE"] == "site-base/1" and "MPI" not in variables


def test_conflicts(tool, shell, tmp_path) -> None:
    """Another MPI is refused; a second Horovod, too, or Lmod swaps the two."""
    put(tmp_path / "m", site.load("local"), Use("node", "cpu"))
    second = f"module load {TORCH}\nmodule load {TF}\necho second=$?"
    done = shell(f"""
module load mpich/4
module load horovod
echo status=$?
{show("refused")}
module purge
{second}
{show("second")}
""")
    assert "status=1" in done.stdout
    assert re.search("conflict|because these module", done.stderr) and "mpich" in done.stderr
    assert "horovod" not in environment(done, "refused")["LOADEDMODULES"]
    loaded = environment(done, "second")["LOADEDMODULES"].split(":")
    assert loaded == ([TF] if tool.name == "lmod" else [TORCH])
    assert "second=1" in shell(second, LMOD_DISABLE_SAME_NAME_AUTOSWAP="yes").stdout


def test_what_is_in_it_can_be_found_out(tool, shell, root) -> None:
    def said(*words):
        done = shell(f"module {' '.join(words)}")
        return done.stdout + done.stderr

    facts = ("PyTorch 2.13.0", "MPI (openmpi 4.1.8)", "GPU architectures", "gcc 12.2.0")
    for text in (said("help", TORCH), said("whatis", TORCH)):
        assert all(fact in text for fact in facts), text
    assert "horovod" in said("keyword", "allreduce")
    assert "horovod" not in said("keyword", "nosuchword")
    if tool.name == "lmod":
        assert "TensorFlow 2.21.0" in said("spider", "horovod") + said("spider", TF)


def test_the_default_and_what_is_listed(shell, root) -> None:
    done = shell("module -t avail horovod\nmodule load horovod; module -t list")
    said = done.stdout + done.stderr
    assert TF in said and "manifest" not in said
    assert said.strip().splitlines()[-1].startswith(TORCH) or TORCH in said.split("Currently")[-1]


def test_an_earlier_version_is_there_after_the_next(shell, root) -> None:
    """And a shell that has one loaded can unload it when others were published since."""
    with store.locked(root):
        current = store.read(root)
        files = {**current.tree.files, "lmod/x/1.lua": b"", "tcl/x/1": b"#%Module\n"}
        sources = {**current.tree.sources, "lmod/x/1.lua": Origin("x", "pip")}
        tree = dataclasses.replace(current.tree, files=files, sources=sources)
        name = store.write(root, current, tree)
        store.switch(root, current.name)
    assert name.startswith("0002")
    done = shell(f"""
{show("before")}
module load {TORCH}
rm {root}/.current && ln -s .generations/$(ls {root}/.generations | tail -n 1) {root}/.current
module load {TORCH}
module unload horovod || exit 3
{show("after")}
""")
    assert done.returncode == 0, done.stderr
    assert users(environment(done, "after")) == users(environment(done, "before"))


def test_a_hierarchy(tool, shell, tmp_path) -> None:
    """The line that is given for the site's MPI module opens it, and unloading that closes it."""
    root = tmp_path / "m"
    machine = dataclasses.replace(site.load("local"), modules=Modules("lmod", ("compiler", "mpi")))
    done = publishing.pretend(mpi=Software("openmpi", "4.1.8"))
    horovod = modulefile.describe(
        done, machine, Use("node", "cpu", run=(("GCC/12", "OpenMPI/4"),))
    )
    write(root, horovod)
    unlocking = modulefile.unlocking(root / tool.name / horovod.directory, tool.name)
    suffix, gcc, mpi = {
        "lmod": (".lua", "", 'family("mpi")'),
        "tcl": ("", "#%Module", "#%Module"),
    }[tool.name]
    module(tmp_path / "site" / f"GCC/12{suffix}", gcc)
    module(tmp_path / "site" / f"OpenMPI/4{suffix}", mpi, unlocking)
    ended = shell(f"""
module load horovod; echo hidden=$?
module load GCC OpenMPI
module load horovod || exit 3
{show("loaded")}
horovodrun
module unload horovod OpenMPI
module load horovod; echo closed=$?
""")
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


@needs.programs("bwrap")
@pytest.mark.parametrize("tool", ["lmod"], indirect=True)
def test_tcl_modules_in_lmod_where_no_tcl_is_installed(tool, root) -> None:
    installed = [*glob.glob("/usr/bin/tclsh*"), *glob.glob("/usr/lib/*/libtcl*")]
    command = [*namespace.words(dict.fromkeys(installed)), "--", "bash", "--norc", "-c"]
    shell = f"{tool.init}; module use {root}/tcl {root.parent}/site; module load horovod"
    done = subprocess.run(
        [*command, f"{shell} && echo $BASE; ls /nonexistent {' '.join(installed)}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "site-base/1\n", done.stderr
