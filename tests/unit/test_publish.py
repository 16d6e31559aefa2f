"""publish: names, what a module has in it, what clashes."""

import dataclasses
import json
import re

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver.publish import describe, naming, plan, render
from hvd.deliver.publish.plan import Source, Tree
from hvd.model import built, environment, site
from hvd.model.built import Change, Part
from hvd.model.site import Modules, Use
from tests import publishing

LOCAL = site.load("local")
CASES = {
    "torch-2.13-openmpi-4.1": {},
    "tf-2.21-openmpi-4.1": {"frameworks": {"tensorflow": "2.21.0"}},
    "torch-2.13-tf-2.21-openmpi-4.1": {
        "frameworks": {"tensorflow": "2.21.0", "pytorch": "2.13.0+cu130"}
    },
    "torch-2.13-gloo": {"controllers": ("gloo",), "operations": ("gloo",), "mpi": Part()},
    "torch-2.13-openmpi-4.1-nogloo": {"controllers": ("mpi",), "operations": ("mpi",)},
    "torch-2.13-openmpi-4.1-nccl": {"operations": ("gloo", "mpi", "nccl"), "gpu": "cuda"},
    "torch-2.13-openmpi-4.1-rccl": {"operations": ("gloo", "mpi", "nccl"), "gpu": "rocm"},
    "torch-2.13-openmpi-4.1-cuda": {"gpu": "cuda"},
    "torch-2.13-openmpi-4.1-ddl": {"operations": ("ddl", "gloo", "mpi"), "gpu": "cuda"},
    "torch-2.13-openmpi-4.1-ccl": {"operations": ("ccl", "gloo", "mpi")},
    "torch-2.13-mpich-4.2": {"mpi": Part("mpich", "4.2.1")},
    "tf-2.21-keras-3.15-openmpi-4.1": {"frameworks": {"keras": "3.15.1", "tensorflow": "2.21.0"}},
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    return publishing.state(tmp_path / "state", monkeypatch)


@pytest.mark.parametrize("expected", CASES)
def test_a_variant_has_a_name_of_its_own(expected) -> None:
    done = publishing.pretend(**CASES[expected])
    assert naming.name(done, LOCAL) == ("horovod", f"0.28.1-{expected}")


@pytest.mark.parametrize(
    ("modules", "name", "directory"),
    [
        (Modules("lmod"), "horovod/0.28.1-torch-2.13-openmpi-4.1", ""),
        (
            Modules("lmod", projection="{name}/{version}-{compiler.name}-{compiler.version}"),
            "horovod/0.28.1-gcc-12.2.0-torch-2.13-openmpi-4.1",
            "",
        ),
        (
            Modules("lmod", ("compiler", "mpi")),
            "horovod/0.28.1-torch-2.13",
            "MPI/gcc/12.2.0/openmpi/4.1.8",
        ),
        (
            Modules("lmod", ("compiler",), "{name}/{version}"),
            "horovod/0.28.1-torch-2.13-openmpi-4.1",
            "Compiler/gcc/12.2.0",
        ),
    ],
)
def test_a_site_names_its_modules(modules, name, directory) -> None:
    done = publishing.pretend()
    machine = dataclasses.replace(LOCAL, modules=modules)
    module = describe.describe(done, machine, Use("node", "cpu"))
    assert (module.full_name, module.directory) == (name, directory)


@pytest.mark.parametrize("name", site.names())
def test_every_sites_projection_can_be_used(name) -> None:
    machine = site.load(name)
    module, version = naming.name(publishing.pretend(), machine)
    assert module == "horovod" and version.startswith("0.28.1-")


@pytest.mark.parametrize("projection", ["{name}/{hash}", "{version}", "{name}/{version}/x"])
def test_a_projection_that_cannot_be_used(projection) -> None:
    machine = dataclasses.replace(LOCAL, modules=Modules("lmod", projection=projection))
    with pytest.raises(
        HvdError, match="sites/local/site.yaml: key 'modules:projection'"
    ) as caught:
        naming.name(publishing.pretend(), machine)
    assert caught.value.remedy


def test_what_the_site_gives() -> None:
    """Its modules first, those of externals that it does not replace, its fabric, conflicts."""
    machine = site.load("perlmutter")
    use = machine.environments["perlmutter-hvd"]
    done = publishing.pretend(
        gpu="cuda",
        operations=("gloo", "mpi", "nccl"),
        architectures=("80",),
        modules=("cudnn/8.7.0", "cray-mpich/8.1.25"),
    )
    module = describe.describe(done, machine, use)
    loads = [word for load in use.run for word in load]
    assert module.depends_on == (*loads, "cray-mpich/8.1.25")
    assert not set(describe._MPIS) & set(module.conflicts)
    values = {change.name: change.value for change in module.changes if change.kind == "set"}
    assert values == {
        **machine.fabric["nccl"],
        "HVD_ACTIVE": done.name,
        "PYTHONNOUSERSITE": "1",
    }
    assert "GPU architectures: CUDA 80" in module.whatis
    assert "NCCL" in module.help and "mpirun" not in module.help


@pytest.mark.parametrize(
    ("modules", "run", "mpi", "refused", "taken"),
    [
        (Modules("none"), (), "openmpi", {"openmpi", "OpenMPI", "mpich"}, set()),
        (Modules("lmod"), (), "openmpi", {"mpich", "impi"}, {"openmpi", "OpenMPI"}),
        (Modules("lmod"), (), "intel-oneapi-mpi", {"openmpi"}, {"impi", "IntelMPI"}),
        (Modules("lmod"), (("GCC/12", "OpenMPI/4"),), "openmpi", set(), {"mpich", "OpenMPI"}),
        (Modules("lmod", ("compiler", "mpi")), (), "openmpi", set(), {"mpich", "OpenMPI"}),
        (Modules("lmod", conflict=("conda",)), (), "openmpi", {"conda", "mpich"}, {"openmpi"}),
    ],
)
def test_which_modules_it_is_not_loaded_beside(modules, run, mpi, refused, taken) -> None:
    """Any other MPI's; the one that it was built with may be a module that all have loaded."""
    machine = dataclasses.replace(LOCAL, modules=modules)
    done = publishing.pretend(mpi=Part(mpi, "4.1.8"))
    module = describe.describe(done, machine, Use("node", "cpu", run=run))
    assert {"horovod", *refused} <= set(module.conflicts)
    assert not taken & set(module.conflicts)


def test_what_depends_on_the_job_is_said_and_not_set() -> None:
    machine = site.load("frontier")
    done = publishing.pretend(gpu="rocm", operations=("gloo", "mpi", "nccl"))
    module = describe.describe(done, machine, machine.environments["frontier-hvd"])
    for name, value in machine.fabric["one_node"].items():
        assert f"Set {name}={value} in jobs on one node." in module.help
        assert name not in {change.name for change in module.changes}


def test_lists_are_in_the_order_of_the_activation() -> None:
    changes = tuple(
        Change("prepend", "PATH", value) for value in ("/a", "/usr/bin", "/b", "/a", "/usr/local/")
    )
    module = describe.describe(
        publishing.pretend(changes=(*changes, Change("prepend", "MANPATH", "/m"))),
        LOCAL,
        Use("", ""),
    )
    lists = [(c.kind, c.name, c.value) for c in module.changes if c.kind != "set"]
    assert lists == [
        ("prepend", "MANPATH", "/m"),
        ("prepend", "PATH", "/b"),
        ("prepend", "PATH", "/a"),
        ("append", "MANPATH", ""),
    ]


def test_a_value_that_no_module_can_hold() -> None:
    done = publishing.pretend(changes=(Change("set", "X", "a\x1b[0m"),))
    module = describe.describe(done, LOCAL, Use("", ""))
    with pytest.raises(HvdError, match="the value of X has a control character"):
        render.module(module, "lmod")


def test_the_same_input_gives_the_same_bytes(publish, tmp_path) -> None:
    publishing.pretend()
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        assert publish("--root", root, "--tool", "both")[0] == 0
    assert publishing.snapshot(roots[0]) == publishing.snapshot(roots[1])
    assert publish("--root", roots[0], "--tool", "both")[0] == 0
    assert publishing.snapshot(roots[0]) == publishing.snapshot(roots[1])


def test_variants_are_side_by_side(publish, tmp_path) -> None:
    publishing.pretend()
    second = publishing.pretend(
        "py-horovod +mpi+gloo frameworks:=tensorflow", frameworks={"tensorflow": "2.21.0"}
    )
    root = tmp_path / "m"
    assert publish("--root", root, "--tool", "tcl")[0] == 0
    status, said = publish(second.environment, "--root", root, "--tool", "both")
    assert status == 0 and "tcl/horovod/0.28.1-tf-2.21-openmpi-4.1" in said
    names = {path.name for path in (root / "tcl/horovod").iterdir()}
    assert names == {".version", *(f"0.28.1-{m}-openmpi-4.1" for m in ("torch-2.13", "tf-2.21"))}
    (only,) = (root / "lmod/horovod").glob("0*.lua")
    assert only.name == "0.28.1-tf-2.21-openmpi-4.1.lua"
    assert 'ModulesVersion "0.28.1-torch' in (root / "tcl/horovod/.version").read_text()
    publish(second.environment, "--root", root, "--tool", "tcl", "--default")
    assert 'ModulesVersion "0.28.1-tf' in (root / "tcl/horovod/.version").read_text()


def test_a_clash_is_found_before_anything_is_written(publish, tmp_path) -> None:
    publishing.pretend()
    other = publishing.pretend("py-horovod@0.28.1 +mpi+gloo frameworks:=pytorch")
    root = tmp_path / "m"
    status, said = publish("local-hvd", other.environment, "--root", root, "--tool", "both")
    assert status == 2 and "has the name of another module, of local-hvd (pip)" in said
    assert "--suffix" in said
    assert set(publishing.snapshot(root)) == set()
    publish("--root", root, "--tool", "both")
    before = publishing.snapshot(root)
    status, said = publish(other.environment, "--root", root, "--tool", "both")
    assert status == 2 and "--suffix WORD, or --replace" in said
    assert publishing.snapshot(root) == before
    again = ["--root", root, "--tool", "both"]
    assert publish(other.environment, *again, "--suffix", "second")[0] == 0
    assert publish(other.environment, *again, "--replace", "--dry-run")[1].count("replaced") == 2
    assert publish(other.environment, *again, "--replace")[0] == 0
    assert (
        other.environment in (root / "lmod/horovod/0.28.1-torch-2.13-openmpi-4.1.lua").read_text()
    )


def test_a_module_of_two_environments_that_is_the_same() -> None:
    """It is no clash: nobody could tell them apart."""
    module = describe.describe(publishing.pretend(), LOCAL, Use("", ""))
    wanted = [(module, Source("a", "pip")), (module, Source("b", "pip"))]
    tree, rows = plan.make(Tree(), wanted, ["tcl"])
    assert [row.change for row in rows] == ["new", "default"] and len(tree.files) == 2


def test_a_dry_run_writes_nothing(publish, tmp_path) -> None:
    publishing.pretend()
    status, said = publish("--root", tmp_path / "m", "--tool", "both", "--dry-run")
    assert status == 0 and re.search(r"Would be +Module +From", said)
    assert re.search(r"new +tcl/horovod/0.28.1-torch-2.13-openmpi-4.1 +local-hvd \(pip\)", said)
    assert not (tmp_path / "m").exists()


def test_bad_input_names_the_way_out(publish, tmp_path) -> None:
    root = ["--root", tmp_path / "m", "--tool", "both"]
    status, said = publish(*root)
    assert status == 2 and "local-hvd has not been built" in said and "./hvd build" in said
    done = publishing.pretend()
    for arguments, text in [
        (["moon-hvd", *root], "no environment is called 'moon-hvd'"),
        ([*root, "--engine", "spack"], "has not been built by spack"),
        (root[:2], "key 'modules:tool': local has no module tool"),
        ([*root[:2], "--tool", "ruby"], "'ruby' is not one of 'lmod', 'tcl', 'both'"),
        ([*root, "--suffix", "a b"], "--suffix: 'a b' is not a word"),
        ([*root[:2], "--rollback"], "no earlier publication"),
        ([*root, "--rollback"], "--rollback goes back by one publication"),
    ]:
        status, said = publish(*arguments)
        assert status == 2 and text in re.sub(r"[│\s]+", " ", said), said
    (paths.STATE / "pip/local-hvd/stamp").unlink()
    assert "has changed since pip built it" in publish(*root)[1]
    publishing.pretend(changes=(Change("prepend", "PATH", "/nowhere/bin"),))
    assert "there is no /nowhere/bin" in publish(*root)[1]
    file = built.file("local-hvd", "pip")
    for text in ("{", "[]", json.dumps({**dataclasses.asdict(done), "format": 0})):
        file.write_text(text)
        status, said = publish(*root)
        assert status == 2 and "built/local-hvd-pip.json" in said and "write it anew" in said
    assert not (tmp_path / "m/lmod").exists()


def test_what_was_built_is_read_as_it_was_written() -> None:
    done = publishing.pretend(gpu="cuda", architectures=("80", "90"), modules=("a/1",))
    assert built.find("local-hvd") == done


def test_the_environment_that_another_was_derived_from() -> None:
    derived = environment.derive(environment.load("alpha-hvd"), "py-horovod ~nccl")
    assert environment.base(derived) == "alpha-hvd"
    assert environment.base(environment.load("alpha-hvd")) == "alpha-hvd"
