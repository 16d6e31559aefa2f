"""externals: what an interpreter has, as Spack externals."""

import json
import pathlib
import subprocess
import sys

import pytest
import yaml

from hvd import externals, probe
from hvd.errors import HvdError
from hvd.mpi import Mpi

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
