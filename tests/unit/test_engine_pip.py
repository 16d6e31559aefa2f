"""What the pip engine makes of an environment and of what an interpreter has."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import subprocess
import types
import venv

import pytest

from hvd.build.engine_pip import PipEngine
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.host.mpi import Mpi
from hvd.model import environment, recipe

VERSIONS = {"torch": "2.13.0", "setuptools": "82.0.0"}
NEEDED = ("numpy", "cloudpickle", "psutil", "pyyaml", "packaging", "setuptools", "cffi")


def engine(spec: str, *frameworks: str, without: str = "", mpi: bool = True) -> PipEngine:
    """An engine for ``spec``, set up on an interpreter that has ``frameworks``."""
    base = environment.load("local-hvd")
    made = PipEngine(dataclasses.replace(base, specs=[spec]))
    names = [name for name in (*NEEDED, *frameworks) if name != without]
    made.found = {
        "python": {
            "version": "3.8.18",
            "prefix": "/site",
            "executable": "/site/bin/python",
            "header": True,
        },
        "distributions": {
            name: {"version": VERSIONS.get(name, "2.15.0"), "prefix": "/site"} for name in names
        },
        "frameworks": {},
    }
    made.mpi = Mpi("openmpi", "4.1.8", pathlib.Path("/opt/mpi")) if mpi else None
    made.recipe = recipe.load("py-horovod")
    made.spec = made._concrete()
    made.recipe.check(made.spec)
    return made


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "compiler_name", lambda: "gcc")
    monkeypatch.setattr(machine, "compiler_version", lambda: "12.2.0")


@pytest.mark.parametrize(
    ("spec", "frameworks"),
    [
        ("py-horovod@0.28.1 frameworks:=tensorflow", ["tensorflow-cpu"]),
        ("py-horovod@0.28.1 frameworks:=pytorch", ["torch"]),
        ("py-horovod@0.28.1 frameworks:=tensorflow,keras", ["tensorflow", "keras"]),
    ],
)
def test_what_horovod_needs_is_there_or_named(spec, frameworks) -> None:
    engine(spec, *frameworks)._require_dependencies()
    for name in ("cloudpickle", frameworks[-1]):
        lacking = engine(spec, *frameworks, without=name)
        with pytest.raises(HvdError) as caught:
            lacking._require_dependencies()
        missing = name.replace("-cpu", "")
        assert caught.value.message == f"/site/bin/python has no {missing}"
        assert caught.value.remedy == f"/site/bin/python -m pip install {missing}"


@pytest.mark.parametrize(
    ("setuptools", "wheel", "missing"),
    [("65.5.0", False, True), ("65.5.0", True, False), ("70.1.0", False, False)],
)
def test_an_old_setuptools_needs_wheel(setuptools, wheel, missing) -> None:
    made = engine("py-horovod@0.28.1 frameworks:=pytorch", "torch", *["wheel"] * wheel)
    made.found["distributions"]["setuptools"]["version"] = setuptools
    if not missing:
        made._require_dependencies()
        return
    with pytest.raises(HvdError) as caught:
        made._require_dependencies()
    assert caught.value.message == "/site/bin/python has no wheel"
    assert caught.value.remedy == "/site/bin/python -m pip install wheel"


def test_check_build_is_expected_to_list_plugins_only() -> None:
    made = engine("py-horovod@0.28.1 frameworks:=tensorflow,keras", "tensorflow", "keras")
    expected = made.expectation()
    assert (expected.frameworks, expected.extras) == ({"tensorflow"}, {"keras"})
    assert expected.controllers == expected.operations == {"mpi", "gloo"}


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_one_controller_is_enough(controller: str) -> None:
    other = {"mpi": "gloo", "gloo": "mpi"}[controller]
    spec = f"py-horovod@0.28.1 +{controller}~{other} frameworks:=tensorflow"
    made = engine(spec, "tensorflow", mpi=controller == "mpi")
    assert made.expectation().controllers == made.expectation().operations == {controller}
    assert ("openmpi" in made.spec.dependencies) == (controller == "mpi")


def test_the_report_names_the_frameworks_that_are_there() -> None:
    made = engine("py-horovod@0.28.1 frameworks:=tensorflow", "tensorflow-cpu")
    assert made.versions()["TensorFlow"] == "2.15.0"
    assert "PyTorch" not in made.versions()


def test_a_build_may_be_for_another_processor_than_this_ones() -> None:
    made = engine("py-horovod@0.28.1 frameworks:=pytorch target=x86_64_v3", "torch")
    assert "-march=x86-64-v3" in made._flags()["HOROVOD_BUILD_ARCH_FLAGS"]
    made = engine("py-horovod@0.28.1 frameworks:=pytorch target=z80", "torch")
    with pytest.raises(HvdError, match="target=z80: archspec knows no such processor"):
        made._flags()


def test_an_mpi_that_is_not_the_controller_is_left_alone() -> None:
    task = types.SimpleNamespace(say=lambda text: None)
    run = types.SimpleNamespace(step=lambda name: contextlib.nullcontext(task))
    for controller, version in (("mpi", "4.1.8"), ("gloo", None)):
        other = {"mpi": "gloo", "gloo": "mpi"}[controller]
        made = engine(f"py-horovod@0.28.1 +{controller}~{other} frameworks:=pytorch", "torch")
        made.concretize(run)
        assert made.versions().get("openmpi") == version
        assert (pathlib.Path("/opt/mpi/bin") in made._first()) == (controller == "mpi")


def test_pth_files_of_the_frameworks_count(tmp_path, monkeypatch) -> None:
    """Python 3.12 has distutils from setuptools' alone, and TensorFlow 2.18 imports it."""
    made = engine("py-horovod@0.28.1 frameworks:=pytorch", "torch")
    venv.create(tmp_path / "frameworks")
    python = tmp_path / "frameworks" / "bin" / "python"
    made.found["python"]["executable"] = str(python)
    ask = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    place = pathlib.Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    (place / "precedence.pth").write_text("import sys; sys.shim = 'there'\n")
    (place / "a_framework.py").write_text("")
    monkeypatch.setattr(paths, "STATE", tmp_path)
    made._make_venv(tmp_path / "log")
    say = "import a_framework, sys; print(sys.shim)"
    assert (
        subprocess.check_output([made.venv / "bin" / "python", "-c", say], text=True) == "there\n"
    )
