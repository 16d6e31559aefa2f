"""publish: a module's name and contents; its root on disk."""

import dataclasses
import os
import resource
import signal
import stat

import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError
from hvd.deliver import activation, modulefile, publish
from hvd.model import built, environment, site
from hvd.model.built import Modification, Software
from hvd.model.site import Modules, Use
from tests import builds
from tests.checkout import script

LOCAL = site.load("local")
NAME = "horovod/0.28.1-torch-2.13-openmpi-4.1"


def at_a_site(hierarchy=(), projection="", run=(), conflict=(), **changes):
    """The module of a build, and the text of its file."""
    modules = Modules("lmod", hierarchy, projection, conflict)
    machine = dataclasses.replace(LOCAL, modules=modules)
    use = Use("node", "cpu", run=run)
    module = modulefile.make(builds.record(**changes), machine, use, "lmod")
    return module, next(iter(module.files.values()))


NCCL = {"operations": ("mpi", "nccl"), "gpu": "cuda"}
GLOO = {"controllers": ("gloo",), "operations": ("gloo",), "mpi": Software()}
LEVELS = {"hierarchy": ("compiler", "mpi")}
COMPILER = "{name}/{version}-{compiler.name}"
BOTH = {"frameworks": {"tensorflow": "2.21.0", "pytorch": "2.13.0+cu130"}}


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("lmod/0.28.1-torch-2.13-openmpi-4.1", {}),
        ("lmod/0.28.1-torch-2.13-tf-2.21-openmpi-4.1", BOTH),
        ("lmod/0.28.1-torch-2.13-gloo", GLOO),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-nogloo", {"controllers": ("mpi",)}),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-nccl", NCCL),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-nccl-gpumpi", {**NCCL, "gpu_mpi": True}),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-rccl", {**NCCL, "gpu": "rocm"}),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-cuda", {"gpu": "cuda"}),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-ddl", {"operations": ("ddl",), "gpu": "cuda"}),
        ("lmod/0.28.1-torch-2.13-openmpi-4.1-ccl", {"operations": ("ccl", "gloo", "mpi")}),
        ("lmod/0.28.1-gcc-torch-2.13-gloo", {**GLOO, "projection": COMPILER}),
        ("lmod/4.1.8-torch-2.13", {"projection": "{name}/{^mpi.version}"}),
        ("lmod/MPI/gcc/12.2.0/openmpi/4.1.8/0.28.1-torch-2.13", LEVELS),
        ("lmod/Core/0.28.1-torch-2.13-gloo", {**GLOO, "hierarchy": ("mpi",)}),
        ("lmod/Compiler/gcc/12.2.0/0.28.1-torch-2.13-gloo", {**GLOO, **LEVELS}),
    ],
)  # fmt: skip
def test_each_variant_has_its_own_place(path, changes) -> None:
    module, _ = at_a_site(**changes)
    assert f"{module.directory}/{module.name}".replace("horovod/", "") == path


@pytest.mark.parametrize("projection", ["{name}/{hash}", "{version}", "{name}/{version}/x", "{"])
def test_a_bad_projection(projection) -> None:
    with pytest.raises(HvdError, match="sites/local/site.yaml: key 'modules:projection'"):
        at_a_site(projection=projection)


def test_a_module_has_what_the_site_gives() -> None:
    """Modules, externals' that it does not replace, and variables; activate.sh has them, too."""
    machine = site.load("frontier")
    use = machine.environments["frontier-hvd"]
    loads = [word for load in use.run for word in load]
    own = loads[0].partition("/")[0]
    extra = {"architectures": ("gfx90a",), "modules": ("zlib/1.3", f"{own}/0")}
    done = builds.record(
        environment="frontier-hvd", gpu="rocm", operations=("mpi", "nccl"), **extra
    )
    module = modulefile.make(done, machine, use, "lmod")
    lines = next(iter(module.files.values())).splitlines()
    found = [line for line in lines if line.startswith("depends_on")]
    assert found == [f'depends_on("{each}")' for each in (*loads, "zlib/1.3")]
    assert 'whatis("GPU architectures: rocm gfx90a")' in lines
    for name, value in machine.variables("rccl").items():
        assert f'pushenv("{name}", "{value}")' in lines
    job = machine.variables("rccl", 1).items() - machine.variables("rccl").items()
    assert job
    for name, value in job:
        assert f"In jobs with one node: export {name}={value}" in lines[1]
        assert not [line for line in lines if line.startswith(f'pushenv("{name}"')]
    for nodes in (1, 2):
        plan = activation.plan(done, nodes)
        assert [*plan.modules] == [*loads, "zlib/1.3"]
        values = {change.name: change.value for change in plan.changes}
        assert machine.variables("rccl", nodes).items() <= values.items()


@pytest.mark.parametrize(
    ("changes", "refused", "taken"),
    [
        ({"conflict": ("conda",)}, {"horovod", "conda", "mpich", "impi"}, {"openmpi", "OpenMPI"}),
        ({"mpi": Software("intel-oneapi-mpi", "2021")}, {"openmpi"}, {"impi", "IntelMPI"}),
        ({"run": (("GCC/12", "OpenMPI/4"),)}, {"horovod"}, {"mpich", "OpenMPI"}),
        (LEVELS, {"horovod"}, {"mpich", "OpenMPI"}),
    ],
)
def test_other_mpis_are_conflicts(changes, refused, taken) -> None:
    _, text = at_a_site(**changes)
    assert all(f'conflict("{each}")' in text for each in refused)
    assert not any(f'conflict("{each}")' in text for each in taken)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "m"


@pytest.fixture
def run(hvd, root):
    """A function that publishes a build for Lmod: its status, and all that it prints."""
    local = environment.load(environment.DEFAULT)
    venv = paths.state() / "pip" / local.name
    programs = script(venv / "venv" / "bin" / "horovodrun", "echo").parent
    (venv / "stamp").write_text("x")
    changes = (Modification("prepend", "PATH", str(programs)),)
    built.save(builds.record(changes=changes, digest=built.digest(local, "pip")))

    def publish_(*options):
        status, out, err = hvd("publish", "--root", root, "--tool", "lmod", *options)
        return status, out + err

    return publish_


def snapshot(root):
    """Mode, and text or target, of all files below ``root`` but the lock."""
    return {
        path: (path.lstat().st_mode, os.readlink(path) if path.is_symlink() else path.read_text())
        for path in root.rglob("*")
        if path.name != ".lock" and (path.is_symlink() or path.is_file())
    }


def test_publish_replace_and_roll_back(run, root) -> None:
    status, said = run("--dry-run")
    assert status == 0 and "prepend_path" in said and not root.exists()
    assert run()[0] == 0
    module, default = root / f"lmod/{NAME}.lua", root / "lmod/horovod/.modulerc.lua"
    assert said == module.read_text()
    first = snapshot(root)
    assert "already" in run()[1] and snapshot(root) == first
    module.write_text("-- by hand\n")
    status, said = run()
    assert status == 2 and "--suffix WORD" in said and module.read_text() == "-- by hand\n"
    assert run("--suffix", "a")[0] == 0 and NAME in default.read_text()
    assert run("--suffix", "b", "--default")[0] == 0 and f"{NAME}-b" in default.read_text()
    assert run("--replace")[0] == 0 and module.read_text() != "-- by hand\n"
    module.write_text("-- by hand\n")
    for expected in (4, 4, 3):
        assert len(list(module.parent.glob("*.lua"))) == expected
        assert run("--rollback")[0] == 0
    assert run("--rollback")[0] == 2
    # and forward again, with a number of its own
    assert run("--suffix", "c")[0] == 0 and os.readlink(root / ".current").endswith("0005")


def test_what_cannot_be_published(run, root, hvd) -> None:
    for argument in ("--suffix=a b", "moon-hvd", "--engine=spack"):
        status, said = run(argument)
        assert status == 2 and argument.rpartition("=")[2] in said and not root.exists()
    stamp = paths.state() / "pip/local-hvd/stamp"
    # of another build, and while there is a build
    for change in (lambda: stamp.write_text("y"), stamp.unlink):
        change()
        status, said = run()
        assert status == 2 and "./hvd build local-hvd" in said and not root.exists()
        assert hvd("activate").status == 2


@pytest.mark.parametrize("call", ["mkdir", "rename", "replace"])
def test_a_kill_leaves_the_former_tree(call, root) -> None:
    """Before the new one is written, before it is in its place, and before the link to it."""
    publish.publish(root, at_a_site()[0])
    before = (root / "lmod").resolve()
    second, _ = at_a_site(mpi=Software("mpich", "4.2"))
    child = os.fork()
    if not child:
        setattr(os, call, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        publish.publish(root, second)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert (root / "lmod").resolve() == before
    assert publish.publish(root, second)
    assert len(list((root / "lmod/horovod").glob("0*"))) == 2
    assert not list((root / ".generations").glob(".new*"))


def test_a_full_disk_changes_nothing(root) -> None:
    publish.publish(root, at_a_site()[0])
    before = snapshot(root)
    second, _ = at_a_site(mpi=Software("mpich", "4.2"))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            publish.publish(root, second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert snapshot(root) == before and publish.publish(root, second)


def test_one_at_a_time(root) -> None:
    publish.publish(root, at_a_site()[0])
    with lock.exclusive(root / ".lock"):
        with pytest.raises(HvdError, match=rf"\(process {os.getpid()}\) publishes to {root}"):
            publish.publish(root, at_a_site()[0])


@pytest.mark.parametrize(
    "spoilt", [".lock", ".generations", ".generations/0001", f"lmod/{NAME}.lua", "lmod/horovod"]
)
def test_links_of_others_are_refused(spoilt, run, root) -> None:
    """Nothing is written through a link that another user of a shared root has made."""
    run()
    os.rename(root / spoilt, root.parent / "copy")
    (root / spoilt).symlink_to(root.parent / "copy")
    before = snapshot(root.parent)
    status, said = run("--suffix", "a")
    assert status == 2 and spoilt.rpartition("/")[2] in said
    assert snapshot(root.parent) == before


@pytest.mark.parametrize(("umask", "group"), [(0, 0), (0o77, 0), (0o22, 0o2020)])
def test_everyone_reads_and_only_the_owner_writes(umask, group, run, root) -> None:
    """But where the root is for a group, its members publish together."""
    root.mkdir()
    root.chmod(0o755 | group)
    before = os.umask(umask)
    try:
        assert run()[0] == run("--suffix", "a")[0] == 0
    finally:
        os.umask(before)
    shared = {root: group, root / ".generations": group, root / ".lock": group & 0o20}
    for path in (root, *root.rglob("*")):
        expected = 0o755 | group & 0o2000 if path.is_dir() else 0o644
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert path.is_symlink() or mode == expected | shared.get(path, 0), path
