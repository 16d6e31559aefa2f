"""publish: a module's name and contents; its root on disk."""

import dataclasses
import os
import resource
import shutil
import signal
import stat

import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError
from hvd.deliver import modulefile, publish
from hvd.model import built, environment, site
from hvd.model.built import Modification, Software
from hvd.model.site import Modules, Use
from tests import builds
from tests.checkout import script

LOCAL = site.load("local")
NAME = "horovod/0.28.1-torch-2.13-openmpi-4.1"


def at_a_site(modules=LOCAL.modules, run=(), tool="lmod", **changes):
    """The module of a build, at a site with ``modules``."""
    machine = dataclasses.replace(LOCAL, modules=modules)
    return modulefile.make(builds.record(**changes), machine, Use("node", "cpu", run=run), tool)


def text(module):
    return next(iter(module.files.values()))


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        ("torch-2.13-openmpi-4.1", {}),
        (
            "torch-2.13-tf-2.21-openmpi-4.1",
            {"frameworks": {"tensorflow": "2.21.0", "pytorch": "2.13.0+cu130"}},
        ),
        ("keras-3.15-openmpi-4.1", {"frameworks": {"keras": "3.15.1"}}),
        (
            "torch-2.13-gloo",
            {"controllers": ("gloo",), "operations": ("gloo",), "mpi": Software()},
        ),
        ("torch-2.13-openmpi-4.1-nogloo", {"controllers": ("mpi",), "operations": ("mpi",)}),
        ("torch-2.13-openmpi-4.1-nccl", {"operations": ("mpi", "nccl"), "gpu": "cuda"}),
        ("torch-2.13-openmpi-4.1-rccl", {"operations": ("mpi", "nccl"), "gpu": "rocm"}),
        ("torch-2.13-openmpi-4.1-cuda", {"gpu": "cuda"}),
        ("torch-2.13-openmpi-4.1-ddl", {"operations": ("ddl", "gloo", "mpi"), "gpu": "cuda"}),
        ("torch-2.13-openmpi-4.1-ccl", {"operations": ("ccl", "gloo", "mpi")}),
        ("torch-2.13-mpich-4.2", {"mpi": Software("mpich", "4.2.1")}),
        (
            "gcc-12.2.0-torch-2.13-openmpi-4.1",
            {
                "modules": Modules(
                    "lmod", (), "{name}/{version}-{compiler.name}-{compiler.version}"
                )
            },
        ),
        (
            "openmpi-4.1.8-torch-2.13",
            {"modules": Modules("lmod", (), "{name}/{version}-{^mpi.name}-{^mpi.version}")},
        ),
    ],
)
def test_each_variant_has_its_own_name(version, changes) -> None:
    assert at_a_site(**changes).name == f"horovod/0.28.1-{version}"


@pytest.mark.parametrize("projection", ["{name}/{hash}", "{version}", "{name}/{version}/x", "{"])
def test_a_bad_projection(projection) -> None:
    with pytest.raises(HvdError, match="sites/local/site.yaml: key 'modules:projection'"):
        at_a_site(Modules("lmod", projection=projection))


@pytest.mark.parametrize(
    ("hierarchy", "directory"),
    [
        ((), "tcl"),
        (("compiler", "mpi"), "tcl/MPI/gcc/12.2.0/openmpi/4.1.8"),
        (("compiler",), "tcl/Compiler/gcc/12.2.0"),
        (("mpi",), "tcl/MPI/openmpi/4.1.8"),
    ],
)
def test_the_directory_in_a_hierarchy(hierarchy, directory) -> None:
    assert at_a_site(Modules("tcl", hierarchy), tool="tcl").directory == directory


def test_a_module_has_what_the_site_gives() -> None:
    """Its modules first, then those of externals that it does not replace; its fabric."""
    machine = site.load("perlmutter-2023")
    use = machine.environments["perlmutter-2023-hvd"]
    done = builds.record(
        gpu="cuda",
        operations=("gloo", "mpi", "nccl"),
        architectures=("80",),
        modules=("cudnn/8.7.0", "cray-mpich/8.1.25"),
    )
    lines = text(modulefile.make(done, machine, use, "lmod")).splitlines()
    loads = [word for load in use.run for word in load]
    assert [line for line in lines if line.startswith("depends_on")] == [
        f'depends_on("{each}")' for each in (*loads, "cray-mpich/8.1.25")
    ]
    for name, value in machine.fabric["nccl"].items():
        assert f'pushenv("{name}", "{value}")' in lines
    assert 'whatis("GPU architectures: cuda 80")' in lines


def test_what_depends_on_the_job_is_in_the_help_alone() -> None:
    machine = site.load("frontier")
    done = builds.record(gpu="rocm", operations=("gloo", "mpi", "nccl"))
    found = text(modulefile.make(done, machine, machine.environments["frontier-hvd"], "lmod"))
    for name, value in machine.fabric["one_node"].items():
        assert f"In jobs with one node: export {name}={value}" in found
        assert f'pushenv("{name}"' not in found


@pytest.mark.parametrize(
    ("modules", "run", "mpi", "refused", "taken"),
    [
        (Modules("lmod"), (), "openmpi", {"mpich", "impi"}, {"openmpi", "OpenMPI"}),
        (Modules("lmod"), (), "intel-oneapi-mpi", {"openmpi"}, {"impi", "intel-mpi", "IntelMPI"}),
        (Modules("lmod"), (("GCC/12", "OpenMPI/4"),), "openmpi", set(), {"mpich", "OpenMPI"}),
        (Modules("lmod", ("compiler", "mpi")), (), "openmpi", set(), {"mpich", "OpenMPI"}),
        (Modules("lmod", conflict=("conda",)), (), "openmpi", {"conda", "mpich"}, {"openmpi"}),
    ],
)
def test_other_mpis_are_conflicts(modules, run, mpi, refused, taken) -> None:
    found = text(at_a_site(modules, run, mpi=Software(mpi, "4.1.8")))
    assert all(f'conflict("{each}")' in found for each in {"horovod", *refused})
    assert not any(f'conflict("{each}")' in found for each in taken)


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
    """Mode, and text or target, of all below ``root`` but the lock."""
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
    assert len(list(module.parent.glob("*.lua"))) == 4
    for expected in (4, 3, 2):
        assert run("--rollback")[0] == 0
        assert len(list(module.parent.glob("*.lua"))) == expected
    assert run("--rollback")[0] == 2
    # and forward again, with a number of its own
    assert run("--suffix", "c")[0] == 0 and os.readlink(root / ".current").endswith("0005")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--suffix=a b"], "--suffix: 'a b'"),
        (["moon-hvd"], "moon-hvd"),
        (["--engine=spack"], "spack"),
    ],
)
def test_what_cannot_be_published(arguments, named, run, root) -> None:
    status, said = run(*arguments)
    assert status == 2 and named in said and not root.exists()
    shutil.rmtree(paths.state() / "pip/local-hvd/venv")
    status, said = run()
    assert status == 2 and "./hvd build local-hvd" in said and not root.exists()


CALLS = ("open", "mkdir", "rename", "replace", "symlink", "link", "rmdir")


def test_a_kill_at_any_moment_leaves_a_whole_tree(tmp_path) -> None:
    """The old tree is visible, or the new one; the next publication succeeds."""
    first = at_a_site()
    second = at_a_site(mpi=Software("mpich", "4.2"))
    call, seen, killed = 0, set(), True
    while killed:
        call += 1
        root = tmp_path / str(call)
        publish.publish(root, first)
        child = os.fork()
        if not child:
            left = [call]

            def counted(function, left=left):
                def call_(*arguments, **keywords):
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*arguments, **keywords)

                return call_

            for name in CALLS:
                setattr(os, name, counted(getattr(os, name)))
            try:
                publish.publish(root, second)
            finally:
                os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found = {path.stem: path.read_text() for path in (root / "lmod/horovod").glob("0*")}
        assert len(found) in (1, 2) and set(found.values()) <= {text(first), text(second)}
        seen.add(len(found))
        publish.publish(root, second)
        assert len(list((root / "lmod/horovod").glob("0*"))) == 2
        assert not list((root / ".generations").glob(".new*"))
    assert call > 10 and seen == {1, 2}


def test_a_full_disk_changes_nothing(run, root) -> None:
    run()
    before = snapshot(root)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        status, said = run("--suffix", "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert status == 2 and "the previous version is unchanged" in said
    assert snapshot(root) == before and run("--suffix", "a")[0] == 0


def test_two_at_a_time(run, root) -> None:
    run()
    with lock.exclusive(root / ".lock"):
        status, said = run("--suffix", "a")
    assert status == 2 and f"(process {os.getpid()})" in said


@pytest.mark.parametrize(
    "spoilt",
    [".lock", ".generations", ".generations/0001", f"lmod/{NAME}.lua", "lmod/horovod", "lmod"],
)
def test_links_of_others_are_refused(spoilt, run, root) -> None:
    """Nothing is written through a link that another user of a shared root has made."""
    run()
    copy = root.parent / "copy"
    os.rename(root / spoilt, copy)
    if spoilt == "lmod":
        (root / "lmod").mkdir()
    else:
        (root / spoilt).symlink_to(copy)
    before = snapshot(root.parent)
    status, said = run("--suffix", "a")
    assert status == 2 and spoilt.rpartition("/")[2] in said
    assert snapshot(root.parent) == before


@pytest.mark.parametrize("umask", [0, 0o77])
def test_everyone_reads_and_only_the_owner_writes(umask, run, root) -> None:
    before = os.umask(umask)
    try:
        assert run()[0] == run("--suffix", "a")[0] == 0
    finally:
        os.umask(before)
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert path.is_symlink() or mode == (0o755 if path.is_dir() else 0o644), path


def test_a_group_publishes_together_where_its_directory_is_for_that(run, root) -> None:
    root.mkdir()
    root.chmod(0o2775)
    assert run()[0] == run("--suffix", "a")[0] == 0
    modes = {".lock": 0o664, ".generations": 0o2775, "lmod/": 0o2755, "lmod/horovod": 0o2755}
    assert {name: stat.S_IMODE(os.stat(root / name).st_mode) for name in modes} == modes
