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

LOCAL = site.load("local")
#: What the site loads.
SITE = (("site-base/1", "site-mpi/4"),)
TORCH = "horovod/0.28.1-torch-2.13-openmpi-4.1"
TF = "horovod/0.28.1-tf-2.21-openmpi-4.1"
#: Every character that a shell or a module's language could take for its own.
ODD = """a b "c" 'd' $HOME ${x} [exit 1] {e} \\n \\ ; # * ~ ]] ]=] --[[ % `f`"""
CHANGES = (
    Modification("prepend", "PATH", "/opt/hvd view/bin"),
    Modification("prepend", "PATH", "/usr/bin"),
    Modification("prepend", "MANPATH", "/opt/hvd/man"),
    Modification("append", "FLAGS", "-lone", " "),
)


@pytest.fixture
def shell(tool, tmp_path):
    """A function that runs lines where a site's modules are, and a Horovod or two for ``tool``."""
    for name in ("site-base/1", "site-mpi/4", "mpich/4"):
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True)
        file.write_text(f"#%Module\nsetenv {name.upper()[:-2].replace('-', '_')} {name}\n")

    def run(lines, run=(), kind=tool.name, modules=LOCAL.modules, **variables):
        fabric = {"HAD": "the module's", "ODD": ODD}
        if kind == tool.name:  # Lmod's Tcl takes no other alphabet
            fabric["PLACE"] = "/logiciel/é"
        machine = dataclasses.replace(LOCAL, fabric={"cpu": fabric}, modules=modules)
        for framework, version in (("pytorch", "2.13.0"), ("tensorflow", "2.21.0")):
            done = builds.record(changes=CHANGES, frameworks={framework: version})
            use = Use("node", "cpu", run=run)
            publish(tmp_path / "m", modulefile.make(done, machine, use, kind))
        use = f"module use '{tmp_path}/m/{kind}' '{tmp_path}/site'"
        return tool.shell(f"{use}\n{lines}", **variables)

    return run


def test_load_and_unload(tool, shell) -> None:
    """What was there comes back exactly, where the module set it anew, too."""
    had = {"HAD": "mine", "FLAGS": "-lzero", "PATH": "/home/me/bin:/usr/bin:/bin"}
    done = shell(
        f"""
{show("before")}
module load site-base/1
module load horovod || exit 3
{show("loaded")}
module unload horovod || exit 4
{show("unloaded")}
module load {TORCH} && module purge || exit 5
{show("purged")}
""",
        run=SITE,
        **had,
    )
    assert done.returncode == 0, done.stderr
    before, loaded, unloaded, purged = (
        environment(done, mark) for mark in ("before", "loaded", "unloaded", "purged")
    )
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
        "SITE_BASE": "site-base/1",
        "SITE_MPI": "site-mpi/4",
    }
    # the site's module that was loaded before stays
    assert users(unloaded) == {**users(before), "SITE_BASE": "site-base/1"}
    assert users(purged) == users(before)


def test_conflicts_and_what_it_says(tool, shell) -> None:
    """Another MPI is refused; a second Horovod, too, or Lmod swaps the two."""
    done = shell(f"""
module load mpich/4
module load horovod; echo status=$?
module purge
module load {TORCH}; module load {TF}; echo second=$?
{show("second")}
module -t avail horovod; module help {TORCH}; module whatis {TORCH}; module keyword allreduce
""")
    assert "status=1" in done.stdout
    assert re.search("conflict|because these module", done.stderr) and "mpich" in done.stderr
    loaded = environment(done, "second")["LOADEDMODULES"].split(":")
    assert loaded == ([TF] if tool.name == "lmod" else [TORCH])
    said = done.stdout + done.stderr
    for fact in ("pytorch 2.13.0", "MPI: openmpi 4.1.8", "Compiler: gcc 12.2.0"):
        assert said.count(fact) >= 2, said
    assert "previous" not in said


def test_a_hierarchy(tool, shell, tmp_path) -> None:
    """The site's MPI module opens it, and unloading that closes it."""
    modules = Modules(tool.name, ("compiler", "mpi"))
    line = f"prepend-path MODULEPATH {tmp_path}/m/{tool.name}/MPI/gcc/12.2.0/openmpi/4.1.8"
    (tmp_path / "site" / "mpi").mkdir()
    (tmp_path / "site" / "mpi" / "1").write_text(f"#%Module\n{line}\n")
    done = shell(
        f"""
module load horovod; echo hidden=$?
module load mpi && module load horovod || exit 3
{show("loaded")}
module unload horovod mpi
module load horovod; echo closed=$?
""",
        modules=modules,
    )
    assert "hidden=1" in done.stdout and "closed=1" in done.stdout, done.stderr
    assert "horovod/0.28.1-torch-2.13" in environment(done, "loaded")["LOADEDMODULES"]


@pytest.mark.parametrize("tool", ["lmod"], indirect=True)
def test_tcl_modules_in_lmod(shell) -> None:
    lines = (
        f"module load horovod || exit 3\n{show('loaded')}\nmodule unload horovod\n{show('after')}"
    )
    done = shell(lines, SITE, "tcl")
    assert done.returncode == 0, done.stderr
    loaded = environment(done, "loaded")
    assert (loaded["ODD"], loaded["SITE_BASE"]) == (ODD, "site-base/1")
    assert not {"ODD", "SITE_BASE", "HVD_ACTIVE"} & set(environment(done, "after"))
