"""What the pip engine makes of an environment and of what an interpreter has."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import venv

import pytest

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.engines import engine_pip
from hvd.engines.engine_pip import PipEngine, PipSolution
from hvd.fetch import source
from hvd.host import accelerators
from hvd.host.accelerators import Library
from hvd.model import built, environment
from hvd.model.built import Software
from hvd.model.recipe import Recipe
from tests.unit.building import interpreter

PYTORCH = "py-horovod@0.28.1 frameworks:=pytorch"


@pytest.fixture
def run(workplace) -> Run:
    return Run("local-hvd", "pip")


def solve(run: Run, spec: str, found: dict, **options) -> PipSolution:
    subject = dataclasses.replace(environment.load("local-hvd"), specs=[spec])
    with run.stage("concretize"):
        return PipEngine(subject, **options).concretize(run, found)


def refused(run: Run, spec: str, found: dict) -> HvdError:
    with pytest.raises(StageFailed) as caught:
        solve(run, spec, found)
    return caught.value.error


@pytest.mark.parametrize(
    ("frameworks", "distributions"),
    [("pytorch", ["torch"]), ("tensorflow,keras", ["tensorflow-cpu", "keras"])],
)
def test_what_horovod_needs_is_there_or_named(run, frameworks, distributions) -> None:
    spec = f"py-horovod@0.28.1 frameworks:={frameworks}"
    solve(run, spec, interpreter(*distributions))
    for name in ("cloudpickle", distributions[-1]):
        lacking = interpreter(*distributions)
        del lacking["distributions"][name]
        missing = name.replace("-cpu", "")
        error = refused(run, spec, lacking)
        assert error.message == f"/site/bin/python has no {missing}"
        assert error.remedy == f"/site/bin/python -m pip install {missing}"


def test_an_old_setuptools_needs_wheel(run) -> None:
    found = interpreter("torch")
    found["distributions"]["setuptools"]["version"] = "65.5.0"
    assert "wheel" in refused(run, PYTORCH, found).message
    found["distributions"]["wheel"] = {"version": "0.38.4", "prefix": "/site"}
    solve(run, PYTORCH, found)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("py-horovod@0.5 frameworks:=pytorch", "no version 0.5"),
        (f"{PYTORCH} ^openmpi@5", "openmpi@5"),
        (f"{PYTORCH} +cuda+ddl~nccl cuda_arch=70", "+ddl"),
        (f"{PYTORCH} +rocm amdgpu_target=gfx90a", "hipcc"),
        (f"{PYTORCH} /abcdef", "/abcdef"),
    ],
)
def test_what_this_engine_cannot_build_is_refused(run, spec, named) -> None:
    assert named in refused(run, spec, interpreter("torch")).message


def test_an_environment_of_a_site_is_refused(run) -> None:
    with pytest.raises(HvdError, match="perlmutter-hvd"):
        PipEngine(environment.load("perlmutter-hvd")).setup(run)


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_one_controller_is_enough(run, controller: str) -> None:
    """An MPI that is not the controller is left alone."""
    other = {"mpi": "gloo", "gloo": "mpi"}[controller]
    made = solve(run, f"{PYTORCH} +{controller}~{other}", interpreter("torch"))
    with run.step("activation") as task:
        done, _ = made.record(task)
    assert done.controllers == done.operations == (controller,)
    with_mpi = controller == "mpi"
    assert ("openmpi" in made.spec.dependencies) == with_mpi
    assert made.versions().get("openmpi") == ("4.1.8" if with_mpi else None)
    assert done.mpi == (Software("openmpi", "4.1.8") if with_mpi else Software())
    assert ("/opt/mpi/bin" in done.variables["PATH"].split(":")) == with_mpi


def test_keras_has_no_plugin_of_its_own(run) -> None:
    found = interpreter("tensorflow-cpu", "keras")
    made = solve(run, "py-horovod@0.28.1 frameworks:=tensorflow,keras", found)
    with run.step("activation") as task:
        done, parts = made.record(task)
    assert done.frameworks == {"keras": "2.15.0", "tensorflow": "2.15.0"}
    assert (done.expectation.frameworks, done.expectation.extras) == ({"tensorflow"}, {"keras"})
    assert (done.python, done.compiler) == ("3.8.18", Software("gcc", "12.2.0"))
    assert made.versions()["TensorFlow"] == "2.15.0" and "PyTorch" not in made.versions()
    assert {node.name for node in made.dag()} >= {"py-horovod", "python", "py-tensorflow", "gcc"}
    assert {part.name for part in parts} >= {"py-horovod", "tensorflow-cpu"}


def test_a_build_may_be_for_another_processor_than_this_ones(run) -> None:
    made = solve(run, f"{PYTORCH} target=x86_64_v3", interpreter("torch"))
    assert "-march=x86-64-v3" in made.flags["HOROVOD_BUILD_ARCH_FLAGS"]
    made = solve(run, f"{PYTORCH} target=x86_64:", interpreter("torch"))
    with pytest.raises(HvdError, match="target=x86_64:"):
        made.flags  # noqa: B018


@pytest.fixture
def fails(monkeypatch, tmp_path):
    """A switch that makes pip fail; no command of a build is run."""
    switch = {"pip": False}

    def start(command, *, log, **keywords):
        if "pip" in command and switch["pip"]:
            raise HvdError("pip failed", log=log)

    def unpack(archive, directory):
        (directory / "horovod").mkdir(parents=True)
        return directory / "horovod"

    monkeypatch.setattr(process, "run", start)
    monkeypatch.setattr(source, "sdist", lambda recipe, version: tmp_path / "sdist")
    monkeypatch.setattr(source, "unpack", unpack)
    monkeypatch.setattr(PipSolution, "_make_venv", lambda self, log: None)
    return switch


def build(run: Run, found: dict, **options) -> list:
    """Name and status of each step of a build."""
    made = solve(run, PYTORCH, found, **options)
    with run.stage("build") as stage:
        made.build(run)
    return [(step.name, step.status) for step in stage.steps]


BUILT = [("sources and patches", "ok"), ("pip install horovod", "ok")]


def test_a_build_is_done_once_and_again_when_it_failed_or_its_inputs_change(
    run, fails, monkeypatch, tmp_path
) -> None:
    found = interpreter("torch")
    none = built.digest(environment.load("local-hvd"), "pip")
    fails["pip"] = True
    with pytest.raises(StageFailed) as caught:
        build(run, found)
    assert caught.value.status == 12
    assert built.digest(environment.load("local-hvd"), "pip") == none
    fails["pip"] = False
    assert build(run, found) == BUILT
    done = built.digest(environment.load("local-hvd"), "pip")
    assert done != none and not (paths.state() / "pip/local-hvd/source/horovod").exists()
    assert build(run, found, jobs=7) == [("pip install horovod", "cached")]
    assert build(run, found, fresh=True) == BUILT
    found["distributions"]["torch"]["version"] = "2.14.0"
    assert build(run, found) == BUILT
    assert built.digest(environment.load("local-hvd"), "pip") != done
    # a patch with other lines, of the same name
    patch = tmp_path / "one.patch"
    monkeypatch.setattr(Recipe, "patches", lambda self, spec: [patch])
    for text in ("1", "2"):
        patch.write_text(text)
        assert build(run, found) == BUILT
    assert build(run, found) == [("pip install horovod", "cached")]


def test_pth_files_of_the_frameworks_count(run, tmp_path) -> None:
    """Python 3.12 has distutils from setuptools' alone, and TensorFlow 2.18 imports it."""
    found = interpreter("torch")
    venv.create(tmp_path / "frameworks")
    python = tmp_path / "frameworks" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    place = pathlib.Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    found["python"].update(executable=str(python), platlib=str(place))
    # Debian's own are beside it
    debian = tmp_path / "dist-packages"
    debian.mkdir()
    (debian / "another_framework.py").write_text("")
    for each in found["distributions"].values():
        each["directory"] = str(debian)
    made = solve(run, PYTORCH, found)
    (place / "precedence.pth").write_text("import sys; sys.shim = 'there'\n")
    (place / "a_framework.py").write_text("")
    made._make_venv(tmp_path / "log")
    say = "import a_framework, another_framework, sys; print(sys.shim)"
    own = made.engine.venv / "bin" / "python"
    assert subprocess.check_output([own, "-c", say], text=True) == "there\n"


def test_nccl_is_that_beside_pytorch(monkeypatch, tmp_path) -> None:
    """Where an interpreter has PyTorch from another one."""
    asked = []

    def nccl(site_packages, scratch):
        asked.append(str(site_packages))
        return Library(tmp_path, "2.28.9")

    monkeypatch.setattr(accelerators, "cuda", lambda: Library(tmp_path, "13.0"))
    monkeypatch.setattr(accelerators, "nccl", nccl)
    found = interpreter("torch")
    found["python"]["platlib"] = "/own"
    for directory in ("/opt/torch", ""):
        found["distributions"]["torch"]["directory"] = directory
        engine_pip._find_accelerators({"cuda": True, "nccl": True}, found)
    assert asked == ["/opt/torch", "/own"]
