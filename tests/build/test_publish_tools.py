"""Published modules in real module tools, in a shell that has nothing else."""

from __future__ import annotations

import dataclasses
import re

import pytest

from hvd.deliver import modulefile
from hvd.deliver.publish import publish
from hvd.model import site
from hvd.model.built import Modification
from hvd.model.site import Modules, Use
from tests import builds
from tests.build.module_tools import environment, show, users

TORCH = "horovod/0.28.1-torch-2.13-openmpi-4.1"
TF = "horovod/0.28.1-tf-2.21-openmpi-4.1"
#: Every character that a shell or a module's language could take for its own.
ODD = """a b "c" 'd' $HOME ${x} [exit 1] {e} \\n \\ ; # * ~ ]] ]=] --[[ % `f`"""
CHANGES = (
    Modification("prepend", "PATH", "/opt/hvd view/bin"),
    Modification("prepend", "PATH", "/usr/bin"),
    Modification("prepend", "MANPATH", "/opt/hvd/man"),
    Modification("append", "FLAGS", "-lone", " "),
    Modification("set", "ODD", ODD),
    Modification("set", "HAD", "the module's"),
)


@pytest.fixture
def shell(tool, tmp_path):
    """A function that runs lines where there are a site's modules, and Horovod's for ``tool``."""

    def run(lines, run=(), language=tool.name, hierarchy=(), **variables):
        # Lmod's Tcl takes no other alphabet
        place = "/logiciel/é" if language == tool.name else "/software"
        changes = (*CHANGES, Modification("set", "PLACE", place))
        machine = dataclasses.replace(site.load("local"), modules=Modules(language, hierarchy))
        for framework in ({"pytorch": "2.13.0"}, {"tensorflow": "2.21.0"}):
            done = builds.record(changes=changes, frameworks=framework)
            module = modulefile.make(done, machine, Use("node", "cpu", run=run), language)
            publish(tmp_path / "m", module)
        opens = f"prepend-path MODULEPATH {tmp_path}/m/{module.directory}"
        own = {"base/1": "setenv BASE 1", "site-mpi/4": opens, "mpich/4": "setenv MPICH 4"}
        for name, line in own.items():
            file = tmp_path / "site" / name
            file.parent.mkdir(parents=True)
            file.write_text(f"#%Module\n{line}\n")
        use = f"module use '{tmp_path}/m/{language}' '{tmp_path}/site'"
        return tool.shell(f"{use}\n{lines}", **variables)

    return run


def test_load_and_unload(tool, shell) -> None:
    """What was there comes back exactly, where the module set it anew, too."""
    lines = f"""
{show("before")}
module load horovod || exit 3
{show("loaded")}
module unload horovod || exit 4
{show("unloaded")}
module load {TORCH} && module purge || exit 5
{show("purged")}
"""
    had = {"HAD": "mine", "FLAGS": "-lzero", "PATH": "/home/me/bin:/usr/bin:/bin"}
    done = shell(lines, run=(("base/1",),), **had)
    assert done.returncode == 0, done.stderr
    before, loaded, unloaded, purged = (
        environment(done, mark) for mark in ("before", "loaded", "unloaded", "purged")
    )
    # the first one published is the default
    assert TORCH in loaded["LOADEDMODULES"]
    assert {k: v for k, v in users(loaded).items() if before.get(k) != v} == {
        "PATH": f"/opt/hvd view/bin:{had['PATH']}",
        "MANPATH": "/opt/hvd/man:" if tool.name == "tcl" else "/opt/hvd/man::",
        "FLAGS": "-lzero -lone",
        "PYTHONNOUSERSITE": "1",
        "HVD_ACTIVE": "local-hvd-pip",
        "ODD": ODD,
        "PLACE": "/logiciel/é",
        "HAD": "the module's",
        "BASE": "1",
    }
    assert users(unloaded) == users(purged) == users(before)


def test_conflicts_and_what_it_says(tool, shell) -> None:
    """Another MPI is refused; a second Horovod, too, or Lmod swaps the two."""
    done = shell(f"""
module load mpich/4
module load horovod; echo status=$?
module purge
module load {TORCH}; module load {TF}
{show("second")}
module help {TORCH}; module whatis {TORCH}; module keyword allreduce
""")
    assert "status=1" in done.stdout
    assert re.search("conflict|because these module", done.stderr) and "mpich" in done.stderr
    loaded = environment(done, "second")["LOADEDMODULES"].split(":")
    assert loaded == ([TF] if tool.name == "lmod" else [TORCH])
    for fact in ("pytorch 2.13.0", "MPI: openmpi 4.1.8", "Compiler: gcc 12.2.0"):
        assert (done.stdout + done.stderr).count(fact) >= 2


def test_a_hierarchy(shell) -> None:
    """The site's MPI module opens it, and unloading that closes it."""
    lines = f"""
module load horovod; echo hidden=$?
module load site-mpi && module load horovod || exit 3
{show("loaded")}
module unload horovod site-mpi
module load horovod; echo closed=$?
"""
    done = shell(lines, hierarchy=("compiler", "mpi"))
    assert "hidden=1" in done.stdout and "closed=1" in done.stdout, done.stderr
    assert "horovod/0.28.1-torch-2.13" in environment(done, "loaded")["LOADEDMODULES"]


@pytest.mark.parametrize("tool", ["lmod"], indirect=True)
def test_tcl_modules_in_lmod(shell) -> None:
    lines = f"module load horovod\n{show('loaded')}\nmodule unload horovod\n{show('after')}"
    done = shell(lines, (("base/1",),), "tcl")
    loaded = environment(done, "loaded")
    assert (loaded["ODD"], loaded["BASE"]) == (ODD, "1"), done.stderr
    assert not {"ODD", "BASE", "HVD_ACTIVE"} & set(environment(done, "after"))
