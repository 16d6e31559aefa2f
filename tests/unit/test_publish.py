"""publish: names, contents of a module, and conflicts between modules."""

import dataclasses

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver.publish import module as modulefile
from hvd.deliver.publish import plan
from hvd.deliver.publish.plan import Origin, Tree
from hvd.model import site
from hvd.model.built import Modification, Software
from hvd.model.site import Modules, Use
from tests import publishing

LOCAL = site.load("local")
NODE = Use("node", "cpu")
NAME = "horovod/0.28.1-torch-2.13-openmpi-4.1"
CASES = {
    "torch-2.13-openmpi-4.1": {},
    "tf-2.21-openmpi-4.1": {"frameworks": {"tensorflow": "2.21.0"}},
    "torch-2.13-tf-2.21-openmpi-4.1": {
        "frameworks": {"tensorflow": "2.21.0", "pytorch": "2.13.0+cu130"}
    },
    "torch-2.13-gloo": {"controllers": ("gloo",), "operations": ("gloo",), "mpi": Software()},
    "torch-2.13-openmpi-4.1-nogloo": {"controllers": ("mpi",), "operations": ("mpi",)},
    "torch-2.13-openmpi-4.1-nccl": {"operations": ("gloo", "mpi", "nccl"), "gpu": "cuda"},
    "torch-2.13-openmpi-4.1-rccl": {"operations": ("gloo", "mpi", "nccl"), "gpu": "rocm"},
    "torch-2.13-openmpi-4.1-cuda": {"gpu": "cuda"},
    "torch-2.13-openmpi-4.1-ddl": {"operations": ("ddl", "gloo", "mpi"), "gpu": "cuda"},
    "torch-2.13-openmpi-4.1-ccl": {"operations": ("ccl", "gloo", "mpi")},
    "torch-2.13-mpich-4.2": {"mpi": Software("mpich", "4.2.1")},
    "tf-2.21-keras-3.15-openmpi-4.1": {"frameworks": {"keras": "3.15.1", "tensorflow": "2.21.0"}},
}


def at_a_site(modules, use=NODE, **changes):
    """The module of a build, at a site with ``modules``."""
    machine = dataclasses.replace(LOCAL, modules=modules)
    return modulefile.describe(publishing.pretend(**changes), machine, use)


@pytest.mark.parametrize("expected", CASES)
def test_a_variant_has_a_name_of_its_own(expected) -> None:
    done = publishing.pretend(**CASES[expected])
    assert modulefile.name(done, LOCAL) == ("horovod", f"0.28.1-{expected}")


@pytest.mark.parametrize(
    ("modules", "name", "directory"),
    [
        (Modules("lmod"), NAME, ""),
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
        (Modules("lmod", ("compiler",), "{name}/{version}"), NAME, "Compiler/gcc/12.2.0"),
    ],
)
def test_a_site_names_its_modules(modules, name, directory) -> None:
    module = at_a_site(modules)
    assert (module.full_name, module.directory) == (name, directory)


@pytest.mark.parametrize("projection", ["{name}/{hash}", "{version}", "{name}/{version}/x"])
def test_a_projection_that_cannot_be_used(projection) -> None:
    key = "sites/local/site.yaml: key 'modules:projection'"
    with pytest.raises(HvdError, match=key) as caught:
        at_a_site(Modules("lmod", projection=projection))
    assert caught.value.remedy


def test_a_module_has_what_the_site_gives() -> None:
    """Its modules first, then those of externals that it does not replace; its fabric."""
    machine = site.load("perlmutter-2023")
    use = machine.environments["perlmutter-2023-hvd"]
    done = publishing.pretend(
        gpu="cuda",
        operations=("gloo", "mpi", "nccl"),
        architectures=("80",),
        modules=("cudnn/8.7.0", "cray-mpich/8.1.25"),
    )
    module = modulefile.describe(done, machine, use)
    loads = [word for load in use.run for word in load]
    assert module.depends_on == (*loads, "cray-mpich/8.1.25")
    assert "mpich" not in module.conflicts
    values = {change.name: change.value for change in module.changes if change.kind == "set"}
    assert machine.fabric["nccl"].items() <= values.items()
    assert "GPU architectures: CUDA 80" in module.whatis
    assert "NCCL" in module.help and "srun -n 2 " in module.help


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
def test_another_mpi_is_a_conflict(modules, run, mpi, refused, taken) -> None:
    """But for the one it was built with, which may be a module that all have loaded."""
    module = at_a_site(modules, Use("node", "cpu", run=run), mpi=Software(mpi, "4.1.8"))
    assert {"horovod", *refused} <= set(module.conflicts)
    assert not taken & set(module.conflicts)


def test_what_depends_on_the_job_is_in_the_help_and_not_set() -> None:
    machine = site.load("frontier")
    done = publishing.pretend(gpu="rocm", operations=("gloo", "mpi", "nccl"))
    module = modulefile.describe(done, machine, machine.environments["frontier-hvd"])
    for name, value in machine.fabric["one_node"].items():
        assert f"Set {name}={value} in jobs on one node." in module.help
        assert name not in {change.name for change in module.changes}


def test_lists_are_in_the_order_of_the_activation() -> None:
    entries = ("/a", "/usr/bin", "/b", "/a", "/usr/local/")
    changes = [Modification("prepend", "PATH", value) for value in entries]
    module = at_a_site(LOCAL.modules, changes=(*changes, Modification("prepend", "MANPATH", "/m")))
    lists = [(c.kind, c.name, c.value) for c in module.changes if c.kind != "set"]
    assert lists == [
        ("prepend", "MANPATH", "/m"),
        ("prepend", "PATH", "/b"),
        ("prepend", "PATH", "/a"),
        ("append", "MANPATH", ""),
    ]


def test_a_value_that_no_module_can_hold() -> None:
    module = at_a_site(LOCAL.modules, changes=(Modification("set", "X", "a\x1b[0m"),))
    with pytest.raises(HvdError, match="the value of X"):
        plan.make(Tree(), [(module, Origin("a", "pip"))], ["lmod"])


def test_the_same_input_gives_the_same_bytes(publish, tmp_path) -> None:
    publishing.pretend()
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in (*roots, roots[0]):
        assert publish("--root", root, "--tool", "both")[0] == 0
    assert publishing.snapshot(roots[0]) == publishing.snapshot(roots[1])


def test_variants_are_side_by_side(publish, tmp_path) -> None:
    publishing.pretend()
    second = publishing.pretend(
        "py-horovod +mpi+gloo frameworks:=tensorflow", frameworks={"tensorflow": "2.21.0"}
    )
    root = tmp_path / "m"
    tcl, lmod = root / "tcl/horovod", root / "lmod/horovod"
    names = [f"0.28.1-{framework}-openmpi-4.1" for framework in ("tf-2.21", "torch-2.13")]
    assert publish("--root", root, "--tool", "tcl")[0] == 0
    assert publish(second.environment, "--root", root, "--tool", "both")[0] == 0
    assert sorted(path.name for path in tcl.iterdir()) == [".version", *names]
    assert [path.name for path in lmod.glob("0*")] == [f"{names[0]}.lua"]
    # the first one is the default until another is made so
    assert names[1] in (tcl / ".version").read_text()
    publish(second.environment, "--root", root, "--tool", "tcl", "--default")
    assert names[0] in (tcl / ".version").read_text()


def test_a_clash_is_found_before_anything_is_written(publish, tmp_path) -> None:
    publishing.pretend()
    other = publishing.pretend("py-horovod@0.28.1 +mpi+gloo frameworks:=pytorch").environment
    root = tmp_path / "m"
    options = ["--root", root, "--tool", "both"]
    status, said = publish("local-hvd", other, *options)
    assert status == 2 and "local-hvd (pip)" in said and "--suffix" in said
    assert not publishing.snapshot(root)
    publish(*options)
    before = publishing.snapshot(root)
    status, said = publish(other, *options)
    assert status == 2 and "--suffix WORD, or --replace" in said
    assert publishing.snapshot(root) == before
    assert publish(other, *options, "--suffix", "second")[0] == 0
    assert publish(other, *options, "--replace", "--dry-run")[1].count("replaced") == 2
    assert publish(other, *options, "--replace")[0] == 0
    assert other in (root / f"lmod/{NAME}.lua").read_text()


def test_equal_modules_of_two_environments_are_no_clash() -> None:
    module = at_a_site(LOCAL.modules)
    wanted = [(module, Origin("a", "pip")), (module, Origin("b", "pip"))]
    tree, rows = plan.make(Tree(), wanted, ["tcl"])
    assert [row.change for row in rows] == ["new", "default"] and len(tree.files) == 2


def test_a_dry_run_writes_nothing(publish, tmp_path) -> None:
    publishing.pretend()
    status, said = publish("--root", tmp_path / "m", "--tool", "both", "--dry-run")
    rows = [line.split()[:3] for line in said.splitlines()]
    assert status == 0 and ["new", f"tcl/{NAME}", "local-hvd"] in rows
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["moon-hvd", "--tool=both"], "'moon-hvd'"),
        (["--tool=both", "--engine=spack"], "spack"),
        ([], "'modules:tool'"),
        (["--tool=ruby"], "'ruby'"),
        (["--tool=both", "--suffix=a b"], "--suffix: 'a b'"),
        (["--rollback"], "no earlier publication"),
        (["--rollback", "--tool=both"], "--rollback"),
    ],
)
def test_a_bad_option_is_named(arguments, named, publish, tmp_path) -> None:
    publishing.pretend()
    status, said = publish("--root", tmp_path / "m", *arguments)
    assert status == 2 and named in said
    assert not (tmp_path / "m/lmod").exists()


def test_a_build_that_is_not_whole_is_refused(publish, tmp_path) -> None:
    arguments = ["--root", tmp_path / "m", "--tool", "both"]
    assert "./hvd build" in publish(*arguments)[1]
    publishing.pretend()
    (paths.state() / "pip/local-hvd/stamp").unlink()
    assert "has changed since pip built it" in publish(*arguments)[1]
    publishing.pretend(changes=(Modification("prepend", "PATH", "/nowhere/bin"),))
    status, said = publish(*arguments)
    assert status == 2 and "/nowhere/bin" in said
    assert not (tmp_path / "m").exists()
