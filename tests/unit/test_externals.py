"""externals: what an interpreter has, as Spack externals."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from hvd.core.errors import HvdError
from hvd.host import externals, probe
from hvd.host.mpi import Mpi
from hvd.model import recipe, specs

OPENMPI = Mpi("openmpi", "4.1.8", pathlib.Path("/site/openmpi"))


def found(**changes):
    names = {"torch": "2.13.0+cpu", "numpy": "2.4.6", "cffi": "2.1.1", "mpi4py": "4.1.2"}
    values = {
        "python": {
            "version": "3.11.7",
            "prefix": "/site/venv",
            "base_prefix": "/usr",
            "executable": "/site/venv/bin/python",
            "header": True,
            "shared": True,
        },
        "distributions": {
            name: {"version": version, "prefix": "/site/venv"} for name, version in names.items()
        },
        "frameworks": {
            "torch": {
                "cuda": None,
                "rocm": None,
                "architectures": [],
                "mpi": False,
                "gloo": True,
                "distributed": True,
            }
        },
        "broken": {},
    }
    return {**values, **changes}


def test_every_external_says_what_it_belongs_to():
    section = externals.packages(found(), OPENMPI)
    torch = section["py-torch"]["externals"][0]
    assert torch["spec"] == "py-torch@2.13.0+gloo~mpi~rocm~cuda"
    assert torch["prefix"] == "/site/venv"
    assert [d["spec"] for d in torch["dependencies"]] == ["python@3.11.7", "py-numpy@2.4.6"]
    assert torch["dependencies"][0]["deptypes"] == ["build", "link", "run"]
    mpi4py = section["py-mpi4py"]["externals"][0]
    assert mpi4py["dependencies"][1] == {
        "spec": "openmpi@4.1.8",
        "deptypes": ["link"],
        "virtuals": "mpi",
    }


def test_nothing_that_is_there_is_built_again():
    section = externals.packages(found(), OPENMPI)
    assert section["mpi"] == {"buildable": False}
    assert [name for name, entry in section.items() if entry["buildable"]] == []


def test_cuda_and_its_architectures_become_variants():
    torch = {"cuda": "12.8", "rocm": None, "architectures": ["70", "80", "90a"], "mpi": False}
    frameworks = {"torch": {**torch, "gloo": True, "distributed": True}}
    section = externals.packages(found(frameworks=frameworks))
    spec = section["py-torch"]["externals"][0]["spec"]
    assert spec.endswith("~rocm+cuda cuda_arch=70,80")


def test_an_mxnet_that_python_can_import_is_one_that_horovod_takes():
    """The recipe asks for mxnet+python, by which the pip engine would refuse it otherwise."""
    distributions = {"mxnet": {"version": "1.9.1", "prefix": "/site/venv"}}
    section = externals.packages(found(distributions=distributions))
    spec = specs.parse(section["mxnet"]["externals"][0]["spec"])
    wanted = [
        specs.parse(each.arguments[0])
        for each in recipe.load("py-horovod").named("depends_on")
        if each.arguments[0].startswith("mxnet@")
    ]
    assert wanted and all(spec.satisfies(each) for each in wanted)


def test_an_mpi_that_was_moved_is_told_its_place(monkeypatch):
    """A rank that no mpirun started, as in a notebook, finds the rest of it by that alone."""
    (external,) = externals.packages(found(), OPENMPI)["openmpi"]["externals"]
    assert "extra_attributes" not in external
    monkeypatch.setattr(Mpi, "_moved", lambda self: True)
    (external,) = externals.packages(found(), OPENMPI)["openmpi"]["externals"]
    place = {"OPAL_PREFIX": "/site/openmpi"}
    assert external["extra_attributes"] == {"environment": {"set": place}}


def test_mpi4py_without_mpi_is_left_out():
    assert "py-mpi4py" not in externals.packages(found())


def test_the_architecture_is_on_every_external():
    section = externals.packages(found(), OPENMPI, "os=sles15 target=zen3")
    specs = [e["spec"] for entry in section.values() for e in entry.get("externals", [])]
    assert specs and all(spec.endswith(" os=sles15 target=zen3") for spec in specs)


def test_an_interpreter_without_headers_is_refused():
    python = {**found()["python"], "header": False}
    with pytest.raises(HvdError) as caught:
        externals.packages(found(python=python))
    assert "Python.h" in caught.value.message and "python3-dev" in caught.value.remedy


def test_a_framework_that_cannot_be_imported_is_an_error(tmp_path):
    """A torch that raises on import, as one with a missing CUDA library does."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12')")
    metadata = tmp_path / "torch-2.13.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    with pytest.raises(HvdError) as caught:
        externals.ask(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert "has torch but cannot import it: ImportError: libcudart.so.12" in caught.value.message


def test_a_distribution_of_debian_has_a_prefix_where_spack_finds_it(tmp_path, monkeypatch):
    monkeypatch.setattr(externals.paths, "STATE", tmp_path / "state")
    packages = tmp_path / "usr" / "lib" / "python3" / "dist-packages"
    for name in ("planted", "planted_beside"):
        (packages / f"{name}-1.2.dist-info").mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
        (packages / f"{name}-1.2.dist-info" / "METADATA").write_text(metadata)
    asked = externals.ask(sys.executable, {"PYTHONPATH": str(packages)})
    have = asked["distributions"]
    prefix = pathlib.Path(have["planted"]["prefix"])
    assert have["planted-beside"]["prefix"] == str(prefix)
    python = asked["python"]
    below = pathlib.Path(python["platlib"]).relative_to(python["prefix"])
    assert (prefix / below).resolve() == packages
    # what is where the interpreter has its own stays
    assert have["pytest"]["prefix"] == python["prefix"]
    assert externals.ask(sys.executable, {"PYTHONPATH": str(packages)}) == asked


def test_no_such_interpreter():
    with pytest.raises(HvdError) as caught:
        externals.ask("/no/such/python")
    assert "/no/such/python" in caught.value.message


def test_the_probe_runs_alone():
    """As `python probe.py`, without this project on its path."""
    done = subprocess.run(
        [sys.executable, "-I", probe.__file__], capture_output=True, text=True, check=True
    )
    printed = json.loads(done.stdout)
    assert printed["python"]["prefix"] == sys.prefix
    assert printed["distributions"]["pytest"]["version"] == pytest.__version__


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path):
    scope = tmp_path / "packages.yaml"
    scope.write_text("packages: {}\n")
    with pytest.raises(HvdError) as caught:
        externals.write(externals.packages(found()), scope, "python3")
    assert str(scope) in caught.value.message
    assert scope.read_text() == "packages: {}\n"


def test_what_is_written_can_be_written_again(tmp_path):
    scope = tmp_path / "packages.yaml"
    for _ in range(2):
        externals.write(externals.packages(found(), OPENMPI), scope, "python3")
    assert yaml.safe_load(scope.read_text())["packages"]["python"]["externals"]
    assert [p.name for p in tmp_path.iterdir()] == ["packages.yaml"]


def test_tensorflow_is_found_under_every_name():
    for name in ("tensorflow", "tensorflow-cpu", "intel-tensorflow"):
        distributions = {
            name: {"version": "2.18.1", "prefix": "/site/venv"},
            "numpy": {"version": "2.0.2", "prefix": "/site/venv"},
        }
        section = externals.packages(found(distributions=distributions))
        (tensorflow,) = section["py-tensorflow"]["externals"]
        assert tensorflow["spec"].startswith("py-tensorflow@2.18.1")
        needs = [each["spec"] for each in tensorflow["dependencies"]]
        assert needs == ["python@3.11.7", "py-numpy@2.0.2"]
        assert tensorflow["dependencies"][0]["deptypes"] == ["build", "link", "run"]


@pytest.mark.parametrize(
    ("build", "variants"),
    [
        ({"cuda": None, "rocm": None, "architectures": []}, "~nccl~rocm~cuda"),
        (
            {"cuda": "12.5", "rocm": None, "architectures": ["60", "80", "90"]},
            "+nccl~rocm+cuda cuda_arch=60,80,90",
        ),
        ({"cuda": None, "rocm": "6.2", "architectures": []}, "+nccl+rocm~cuda"),
        ({"cuda": "unknown", "rocm": None, "architectures": []}, "+nccl~rocm+cuda"),
    ],
)
def test_tensorflows_variants_say_what_it_was_built_for(build, variants):
    distributions = {"tensorflow": {"version": "2.18.1", "prefix": "/site/venv"}}
    section = externals.packages(
        found(distributions=distributions, frameworks={"tensorflow": build})
    )
    assert section["py-tensorflow"]["externals"][0]["spec"] == f"py-tensorflow@2.18.1{variants}"


TENSORFLOW = """
class test:
    is_built_with_cuda = staticmethod(lambda: CUDA)
class sysconfig:
    pass
"""


@pytest.mark.parametrize(("cuda", "said"), [("True", "unknown"), ("False", None)])
def test_a_tensorflow_that_cannot_say_its_cuda_is_understood(tmp_path, cuda, said):
    """get_build_info came with 2.3; and no distribution is called tensorflow here."""
    (tmp_path / "tensorflow").mkdir()
    text = TENSORFLOW.replace("CUDA", cuda)
    (tmp_path / "tensorflow" / "__init__.py").write_text(text)
    asked = externals.ask(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert asked["frameworks"]["tensorflow"] == {"cuda": said, "rocm": None, "architectures": []}
