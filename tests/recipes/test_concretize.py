"""`local-hvd` concretizes to what it says, on a machine that is a stand-in."""

import hashlib
import json
import pathlib

import pytest

from hvd.core import paths
from hvd.model import specs
from tests.conftest import copy_checkout
from tests.recipes.conftest import stand_in

#: What a user's own configuration might do to ours.
POISON = {
    "packages.yaml": "packages: {all: {require: '%clang@99'}, py-horovod: {require: '@0.19.5'}}",
    "config.yaml": "config: {install_tree: {root: /nowhere}, build_jobs: nonsense}",
    "repos.yaml": "repos: {builtin:: /nowhere}",
}


@pytest.fixture(scope="module")
def solved(pair, find_spack, path_without_mpi, tmp_path_factory):
    """local-hvd, concretized in a home with a poisoned ~/.spack."""
    find_spack(pair)
    scratch = tmp_path_factory.mktemp(pair)
    checkout = copy_checkout(scratch / "hvd")
    home = scratch / "home"
    (home / ".spack").mkdir(parents=True)
    for name, text in POISON.items():
        (home / ".spack" / name).write_text(text)
    python = stand_in(scratch / "site")
    done = checkout.hvd(
        *("concretize", "local-hvd", "--engine=spack", f"--pair={pair}", f"--python={python}"),
        HOME=str(home),
        XDG_CACHE_HOME=str(paths.cache().parent),
        PATH=path_without_mpi,
    )
    return done, checkout, home, python


@pytest.fixture(scope="module")
def nodes(solved):
    done, checkout, _, _ = solved
    assert done.returncode == 0, done.stdout
    lock = json.loads((checkout.root / "environments/local-hvd/spack.lock").read_text())
    return {node["name"]: node for node in lock["concrete_specs"].values()}


def test_the_variants_are_what_was_asked_for(nodes):
    horovod = nodes["py-horovod"]
    assert horovod["version"] == "0.28.1"
    assert horovod["parameters"]["frameworks"] == ["pytorch"]
    on = {name for name, value in horovod["parameters"].items() if value is True}
    assert on == {"mpi", "gloo"}


def test_what_the_machine_has_is_taken_and_not_built(nodes, solved):
    python = solved[3]
    for name in ("python", "py-torch", "py-numpy", "py-cffi", "openmpi"):
        assert nodes[name]["external"]["path"] == str(python.parents[1]), name
    for name in ("gcc", "cmake", "gmake"):
        assert "external" in nodes[name], name


def test_what_is_left_to_build_is_small(nodes):
    built = {name for name, node in nodes.items() if "external" not in node}
    assert built == {
        "py-horovod",
        "python-venv",
        "py-pip",
        "py-wheel",
        "compiler-wrapper",
        "gcc-runtime",
    }


def test_the_users_own_configuration_neither_leaks_in_nor_is_written(nodes, solved):
    home = solved[2]
    left = {
        str(path.relative_to(home / ".spack")): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (home / ".spack").rglob("*")
        if path.is_file()
    }
    assert left == {n: hashlib.sha256(t.encode()).hexdigest() for n, t in POISON.items()}


def test_spack_says_no_warning(nodes, solved):
    logs = solved[1].root / ".hvd" / "logs"
    said = [
        f"{log.name}: {line}"
        for log in sorted(logs.rglob("*.log"))
        for line in log.read_text().splitlines()
        if "Warning" in line or "deprecated" in line
    ]
    assert not said


def test_a_second_time_nothing_is_solved(nodes, solved, path_without_mpi, pair):
    done, checkout, home, python = solved
    again = checkout.hvd(
        *("concretize", "local-hvd", "--engine=spack", f"--pair={pair}", f"--python={python}"),
        PATH=path_without_mpi,
    )
    (line,) = [line for line in again.stdout.splitlines() if "spack concretize" in line]
    assert "cached" in line


def test_open_mpi_3_1_3_is_refused_with_the_way_out(pair, find_spack, path_without_mpi, tmp_path):
    find_spack(pair)
    checkout = copy_checkout(tmp_path / "hvd")
    python = stand_in(tmp_path / "site", openmpi="3.1.3")
    done = checkout.hvd(
        *("concretize", "local-hvd", "--engine=spack", f"--pair={pair}", f"--python={python}"),
        PATH=path_without_mpi,
    )
    assert done.returncode == 11, done.stdout
    assert "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:" in done.stdout
    # without asking Spack, which takes minutes for it
    assert not (checkout.root / ".hvd/logs/local-hvd-spack/concretize").exists()


def test_another_spec_is_solved_with_the_machines_tensorflow(
    pair, find_spack, path_without_mpi, tmp_path
):
    find_spack(pair)
    checkout = copy_checkout(tmp_path / "hvd")
    python = stand_in(tmp_path / "site", tensorflow=True)
    spec = "py-horovod@0.28.1 ~mpi+gloo~cuda~rocm frameworks:=pytorch,tensorflow"
    done = checkout.hvd(
        *("concretize", "local-hvd", "--engine=spack", f"--pair={pair}", f"--python={python}"),
        *("--spec", spec),
        PATH=path_without_mpi,
    )
    assert done.returncode == 0, done.stdout
    (file,) = (checkout.root / ".hvd" / "environments").glob("local-hvd-*/spack.lock")
    concrete = json.loads(file.read_text())["concrete_specs"].values()
    nodes = {node["name"]: node for node in concrete}
    horovod = nodes["py-horovod"]["parameters"]
    assert sorted(horovod["frameworks"]) == ["pytorch", "tensorflow"]
    assert (horovod["mpi"], horovod["gloo"]) == (False, True)
    for name in ("py-tensorflow", "py-torch", "py-numpy", "python"):
        assert nodes[name]["external"]["path"] == str(python.parents[1]), name
    tensorflow = nodes["py-tensorflow"]
    assert tensorflow["version"] == "2.18.1"
    assert not any(tensorflow["parameters"][name] for name in ("cuda", "rocm", "nccl"))
    built = {name for name, node in nodes.items() if "external" not in node}
    assert built == {
        *("py-horovod", "python-venv", "py-pip", "py-wheel"),
        *("compiler-wrapper", "gcc-runtime"),
    }
    # the environment itself is as it was
    assert not (checkout.root / "environments" / "local-hvd" / "spack.lock").exists()


def test_a_source_tree_of_ones_own_is_built(solved, nodes, horovod_tree, py_horovod, tmp_path):
    """`spack develop`; last, as it changes the environment."""
    checkout = solved[1]
    tree = horovod_tree("0.28.1", *py_horovod.patches(specs.parse("py-horovod@0.28.1")))
    done = checkout.shell(
        f". {checkout.root}/.hvd/setup-env.sh && spack env activate local-hvd"
        f" && spack develop --no-clone --path {tree} py-horovod@0.28.1"
        " && spack concretize --force --fresh"
        f" && spack python {pathlib.Path(__file__).with_name('describe_build.py')}"
    )
    assert done.returncode == 0, done.stdout
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["variables"]["HOROVOD_WITH_PYTORCH"] == "1"
    lock = json.loads((checkout.root / "environments/local-hvd/spack.lock").read_text())
    (horovod,) = [n for n in lock["concrete_specs"].values() if n["name"] == "py-horovod"]
    assert horovod["parameters"]["dev_path"] == str(tree)
    assert horovod["version"] == "0.28.1" and horovod["parameters"]["frameworks"] == ["pytorch"]
