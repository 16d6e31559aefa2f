"""externals: what an interpreter has, as Spack externals."""

import os
import pathlib
import sys

import pytest
import yaml

from hvd.cli import externals as externals_command
from hvd.core.errors import HvdError
from hvd.doctor import gather
from hvd.host import externals
from hvd.host.mpi import Mpi
from hvd.model import recipe, specs

OPENMPI = Mpi("openmpi", "4.1.8", pathlib.Path("/site/openmpi"))


PYTHON = {
    "version": "3.11.7",
    "prefix": "/site/venv",
    "executable": "/site/venv/bin/python",
    "header": True,
}
TORCH = {
    **dict(cuda=None, rocm=None, architectures=[]),
    **dict(mpi=False, gloo=True, distributed=True),
}


def distributions(**versions):
    return {name: {"version": each, "prefix": "/site/venv"} for name, each in versions.items()}


def found(**changes):
    return {
        "python": PYTHON,
        "distributions": distributions(
            torch="2.13.0+cpu", numpy="2.4.6", cffi="2.1.1", mpi4py="4.1.2"
        ),
        "frameworks": {"torch": TORCH},
        **changes,
    }


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
    assert section["mpi"] == {"buildable": False}
    assert "py-mpi4py" not in externals.packages(found())
    assert [name for name, entry in section.items() if entry["buildable"]] == []


def test_an_mxnet_that_python_can_import_is_one_that_horovod_takes():
    """The recipe asks for mxnet+python~cuda, and Spack's package has CUDA by default."""
    features = {"cuda": False, "cudnn": False, "nccl": False}
    section = externals.packages(
        found(distributions=distributions(mxnet="1.9.1"), frameworks={"mxnet": features})
    )
    assert section["mxnet"]["externals"][0]["spec"] == "mxnet@1.9.1+python~cuda~cudnn~nccl"
    spec = specs.parse(section["mxnet"]["externals"][0]["spec"])
    wanted = [
        specs.parse(each.arguments[0])
        for each in recipe.load("py-horovod").named("depends_on")
        if each.arguments[0].startswith(("mxnet@", "mxnet~cuda"))
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


def test_the_architecture_is_on_every_external():
    section = externals.packages(found(), OPENMPI, "os=sles15 target=zen3")
    specs = [e["spec"] for entry in section.values() for e in entry.get("externals", [])]
    assert specs and all(spec.endswith(" os=sles15 target=zen3") for spec in specs)


def test_an_interpreter_without_headers_is_refused():
    with pytest.raises(HvdError, match="/site/venv/bin/python has no Python.h"):
        externals.packages(found(python={**PYTHON, "header": False}))


def install(directory: pathlib.Path, name: str, module: str = "") -> None:
    """Put version 1.2 of a distribution into ``directory``, with a package unless it is empty."""
    metadata = directory / f"{name}-1.2.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    if module:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(module)


def test_a_framework_that_cannot_be_imported_is_an_error(tmp_path):
    """A torch that raises on import, as one with a missing CUDA library does."""
    install(tmp_path, "torch", "raise ImportError('libcudart.so.12')")
    with pytest.raises(HvdError, match="torch .*: ImportError: libcudart.so.12"):
        externals.ask(sys.executable, {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(HvdError, match="/no/such/python"):
        externals.ask("/no/such/python")


def test_a_distribution_of_debian_has_a_prefix_where_spack_finds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path / "state"))
    packages = tmp_path / "usr" / "lib" / "python3" / "dist-packages"
    for name in ("planted", "planted_beside"):
        install(packages, name)
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


def test_only_a_file_of_our_own_is_written_again(tmp_path):
    scope = tmp_path / "packages.yaml"
    for _ in range(2):
        externals.write(externals.packages(found(), OPENMPI), scope, "python3")
    assert yaml.safe_load(scope.read_text())["packages"]["python"]["externals"]
    assert [p.name for p in tmp_path.iterdir()] == ["packages.yaml"]
    scope.write_text("packages: {}\n")
    with pytest.raises(HvdError, match=str(scope)):
        externals.write(externals.packages(found()), scope, "python3")
    assert scope.read_text() == "packages: {}\n"


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "intel-tensorflow"])
def test_tensorflow_is_found_under_every_name(name):
    have = distributions(**{name: "2.18.1", "numpy": "2.0.2"})
    (tensorflow,) = externals.packages(found(distributions=have))["py-tensorflow"]["externals"]
    assert tensorflow["spec"].startswith("py-tensorflow@2.18.1")
    needs = [each["spec"] for each in tensorflow["dependencies"]]
    assert needs == ["python@3.11.7", "py-numpy@2.0.2"]


@pytest.mark.parametrize(
    ("framework", "build", "variants"),
    [
        ("tensorflow", {}, "~nccl~rocm~cuda"),
        ("tensorflow", {"rocm": "6.2"}, "+nccl+rocm~cuda"),
        ("tensorflow", {"cuda": "unknown"}, "+nccl~rocm+cuda"),
        ("torch", {"mpi": True, "gloo": False}, "~gloo+mpi~rocm~cuda"),
        ("torch", {"distributed": False}, "~distributed~rocm~cuda"),
        (
            "torch",
            {"cuda": "12.8", "architectures": ["70", "80", "90a"]},
            "+gloo~mpi~rocm+cuda cuda_arch=70,80",
        ),
    ],
)
def test_the_variants_say_what_a_framework_was_built_for(framework, build, variants):
    section = externals.packages(
        found(
            distributions=distributions(**{framework: "2.18.1"}),
            frameworks={framework: {**TORCH, **build}},
        )
    )
    (external,) = section[f"py-{framework}"]["externals"]
    assert external["spec"] == f"py-{framework}@2.18.1{variants}"


#: One before 2.3, when get_build_info came; and tensorflow-rocm 2.12.0.560 and 2.14.0.600.
OLD = "class test: is_built_with_cuda = staticmethod(lambda: {})\nclass sysconfig: pass\n"
ROCM = """
class sysconfig:
    get_build_info = staticmethod(lambda: {"is_cuda_build": False, "is_rocm_build": True})
"""


@pytest.mark.parametrize(
    ("module", "cuda", "rocm"),
    [
        (OLD.format(True), "unknown", None),
        (OLD.format(False), None, None),
        (ROCM, None, "unknown"),
    ],
)
def test_a_tensorflow_that_cannot_say_all_is_understood(tmp_path, module, cuda, rocm):
    """No distribution is called tensorflow here."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(module)
    asked = externals.ask(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)})
    said = {"cuda": cuda, "rocm": rocm, "architectures": []}
    assert asked["frameworks"]["tensorflow"] == said


@pytest.mark.parametrize(
    ("build", "capabilities", "said"),
    [
        ({"cuda": "13.0"}, ("9.0", "9.0"), "spack install py-horovod+cuda\n"),
        ({"cuda": "13.0"}, (), "spack install py-horovod+cuda cuda_arch=80"),
        ({"rocm": "6.4"}, (), "spack install py-horovod+rocm amdgpu_target="),
        ({}, (), ""),
    ],
)
def test_a_framework_for_gpus_says_what_to_type(monkeypatch, capsys, build, capabilities, said):
    """And GPUs of the machine are the default, as only they are there to build for."""
    built = found(frameworks={"torch": {**TORCH, **build}})
    monkeypatch.setattr(externals, "ask", lambda python: built)
    monkeypatch.setattr(externals, "find_mpi", lambda found: OPENMPI)
    monkeypatch.setattr(gather, "gpus", lambda shell: gather.Gpus(capabilities=capabilities))
    externals_command.write_externals("", "/site/venv/bin/python", None, "")
    printed = capsys.readouterr()
    section = yaml.safe_load(printed.out)["packages"]
    assert section.get("all") == ({"variants": ["cuda_arch=90"]} if capabilities else None)
    assert said in printed.err and bool(printed.err) == bool(said)
