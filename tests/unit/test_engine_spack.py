"""The Spack engine, with a stand-in for Spack."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import Run, StageFailed
from hvd.engines.engine_spack import SpackEngine, pair_of
from hvd.fetch import clone
from hvd.host import externals, framework
from hvd.host.mpi import Mpi
from hvd.model import built, environment
from hvd.model.built import Modification, Software
from hvd.model.versions import Pair, Pin, pinned
from hvd.solve import location, queries
from hvd.solve.location import Sources
from tests.checkout import commit
from tests.unit.building import BUILT, LOCK, VARIANTS, fake_spack, interpreter, pytorch_environment

PRUNED = ["prune", "concretize"]
SOURCE = {"name": "py-horovod", "version": "0.28.1", "url": "file:///x", "sha256": "", "path": "x"}


PINNED, *_, OLD = pinned().pairs


@pytest.fixture
def fake(workplace):
    return fake_spack(workplace / "spack")


@pytest.fixture
def subject(fake):
    return pytorch_environment()


def stage(engine, name, work):
    """The steps of a stage: name and status; and what ``work`` returned or raised."""
    run = Run(engine.environment.name, engine.name)
    result = None
    try:
        with run.stage(name) as made:
            result = work(run)
    except StageFailed as failure:
        result = failure
    return [(step.name, step.status) for step in made.steps], result


def concretize(engine):
    found = interpreter("torch")
    return stage(engine, "concretize", lambda run: engine.concretize(run, found))


def solved(engine):
    return concretize(engine)[1]


def test_setup_configures_spack_and_finds_what_the_machine_has(fake, subject, monkeypatch):
    monkeypatch.setattr(framework, "provide", lambda run, subject, python: interpreter("torch"))
    engine = SpackEngine(subject, fake.spack, jobs=3)
    steps, found = stage(engine, "setup", engine.setup)
    assert steps == [("configuration", "ok"), ("compilers and build tools", "ok")]
    assert found == interpreter("torch")
    assert fake.commands() == ["find", "find"]
    config = yaml.safe_load((fake.spack.scope / "config.yaml").read_text())["config"]
    assert config["build_jobs"] == 3 and config["install_tree"]["root"].startswith(
        str(paths.state())
    )
    tools = yaml.safe_load((fake.spack.state / "tools" / "packages.yaml").read_text())["packages"]
    assert {name for name, entry in tools.items() if not entry["buildable"]} == {
        *("c", "cxx", "fortran", "gcc")
    }
    script = (paths.state() / "setup-env.sh").read_text()
    shown = subprocess.check_output(["bash", "-c", f"{script}\nenv"], text=True)
    assert f"SPACK_USER_CONFIG_PATH={fake.spack.scope}\n" in shown
    assert f"SPACK_ROOT={fake.spack.root}\n" in shown
    fake.let(compiler=False)
    steps, failure = stage(engine, "setup", engine.setup)
    assert steps[-1] == ("compilers and build tools", "failed") and failure.status == 10


def test_an_environment_of_a_site_takes_nothing_of_this_machine(fake):
    engine = SpackEngine(environment.load("perlmutter-hvd"), fake.spack)
    steps, found = stage(engine, "setup", engine.setup)
    assert steps == [("configuration", "ok")] and not found["distributions"]
    assert fake.calls() == []


@pytest.mark.parametrize("changed", ["spack.yaml", "packages.yaml", "spack.lock", "pair", ""])
def test_an_environment_is_solved_again_when_an_input_has_changed(fake, subject, changed):
    engine = SpackEngine(subject, fake.spack)
    steps, solution = concretize(engine)
    assert steps == [("spack concretize", "ok")] and fake.commands() == PRUNED
    assert solution.specs == LOCK and pair_of(subject) == fake.spack.pair.name
    view = subject.directory / ".spack-env" / "view"
    view.mkdir(parents=True)
    if changed == "pair":
        engine = SpackEngine(subject, dataclasses.replace(fake.spack, pair=OLD))
    elif changed:
        directory = fake.spack.scope if changed == "packages.yaml" else subject.directory
        directory.mkdir(exist_ok=True)
        with open(directory / changed, "a") as stream:
            stream.write("\n")
    steps, again = concretize(engine)
    assert steps == [("spack concretize", "ok" if changed else "cached")]
    assert fake.commands() == (PRUNED if changed else [])
    assert changed or again == solution
    # what another Spack made is forgotten
    assert view.exists() == (changed != "pair") and pair_of(subject) == engine.spack.pair.name


def test_fresh_solves_anew_and_takes_nothing_from_spacks_cache(fake, subject):
    concretize(SpackEngine(subject, fake.spack))
    _, first = fake.calls()
    assert not [word for word in first if "install_tree" in word]
    # compilers of what is installed here are no compilers of a site
    fake.let(prune={"unneeded": ["llvm"], "compilers_here": False})
    concretize(SpackEngine(subject, fake.spack, fresh=True))
    _, words = fake.calls()
    assert "concretizer:concretization_cache:enable:false" in words
    assert [word for word in words if "install_tree" in word]
    pruned = fake.spack.state / subject.name / "prune" / "packages.yaml"
    assert yaml.safe_load(pruned.read_text()) == {"packages": {"llvm": {"buildable": False}}}


def test_an_activation_knows_where_a_centres_sites_are(fake, tmp_path, monkeypatch):
    setup = fake.spack.root / "share" / "spack" / "setup-env.sh"
    setup.parent.mkdir(parents=True, exist_ok=True)
    setup.write_text('spack() { export SEEN="$HVD_SITES $3"; }\n')
    monkeypatch.setenv("HVD_SITES", "/apps/hvd")
    seen = fake.spack.activation(tmp_path, tmp_path / "log")
    assert seen["SEEN"] == f"/apps/hvd {tmp_path}"
    assert "export HVD_SITES=/apps/hvd\n" in fake.spack._setup_script()


@pytest.mark.parametrize("word", ["python", "concretize"])
def test_a_solve_that_failed_is_done_again(fake, subject, word):
    engine = SpackEngine(subject, fake.spack)
    fake.let(fails=[word])
    steps, failure = concretize(engine)
    assert steps == [("spack concretize", "failed")] and failure.status == 11
    assert "it fails" in failure.error.log.read_text()
    assert not subject.lockfile.exists()
    fake.let(fails=[])
    assert concretize(engine)[0] == [("spack concretize", "ok")]


def test_a_solution_that_is_not_the_sites_is_not_kept_as_solved(fake, workplace):
    """Nothing of it is taken for granted by the next run."""
    chosen = dataclasses.replace(environment.load("perlmutter-hvd"), directory=workplace / "site")
    chosen.directory.mkdir()
    (chosen.directory / "spack.yaml").write_text("")
    engine = SpackEngine(chosen, fake.spack)
    for _ in range(2):
        fake.calls()
        steps, failure = concretize(engine)
        assert steps == [("spack concretize", "failed")]
        assert "os=debian12, not sles15" in failure.error.message
        assert fake.commands() == PRUNED


def test_an_mpi_that_the_recipe_refuses_is_refused_before_the_solve(fake, subject, monkeypatch):
    monkeypatch.setattr(externals, "find_mpi", lambda found: Mpi("openmpi", "3.1.3", paths.ROOT))
    _, failure = concretize(SpackEngine(subject, fake.spack))
    assert failure.status == 11 and "3.1.3" in failure.error.message and fake.calls() == []


def test_a_lock_that_is_none_is_named(fake, subject):
    subject.lockfile.write_text("{}")
    with pytest.raises(HvdError, match="spack.lock"):
        SpackEngine(subject, fake.spack).solution()


OFF_LINE = {**SOURCE, "url": "https://127.0.0.1:9/x.tar.gz"}


@pytest.mark.parametrize(
    ("options", "sources", "fails", "steps"),
    [
        ({}, [SOURCE], "", {"sources": "ok", "spack install": "ok"}),
        ({}, [], "", {"sources": "ok", "spack install": "cached"}),
        (
            {"fresh": True},
            [SOURCE],
            "",
            {"spack uninstall py-horovod": "ok", "sources": "ok", "spack install": "ok"},
        ),
        ({}, [SOURCE], "install", {"sources": "ok", "spack install": "failed"}),
        # one without a checksum is not fetched
        ({}, [OFF_LINE], "", {"sources": "failed"}),
    ],
)
def test_a_build(fake, subject, options, sources, fails, steps):
    engine = SpackEngine(subject, fake.spack, jobs=5, **options)
    solution = solved(engine)
    fake.calls()
    fake.let(sources=sources, fails=[fails])
    done, failure = stage(engine, "build", solution.build)
    assert dict(done) == steps
    assert fake.commands() == [name.split()[1] if " " in name else name for name in steps]
    if "failed" in steps.values():
        assert failure.status == 12


def record(engine):
    """The record of a build and its parts, or how it failed."""
    solution = solved(engine)

    def work(run):
        with run.step("activation") as task:
            return solution.record(task)

    return stage(engine, "build", work)[1]


WITHOUT = {"gpu": "", "architectures": (), "nccl_link": "", "gpu_mpi": False}
CUDA = {"mpi": False, "cuda": True, "cuda_arch": ["80", "90"], "nccl": True}
ROCM = {"rocm": True, "amdgpu_target": "gfx90a", "gpu_ops": "mpi", "nccl": False}


@pytest.mark.parametrize(
    ("variants", "operations", "expected"),
    [
        ({}, ("gloo", "mpi"), WITHOUT),
        (
            CUDA,
            ("gloo", "nccl"),
            {"gpu": "cuda", "architectures": ("80", "90"), "nccl_link": "shared"},
        ),
        (
            ROCM,
            ("gloo", "mpi"),
            {"gpu": "rocm", "architectures": ("gfx90a",), "gpu_mpi": True, "nccl_link": ""},
        ),
    ],
)
def test_the_record_of_a_build(fake, subject, monkeypatch, variants, operations, expected):
    horovod = {**LOCK["a"], "parameters": {**VARIANTS, **variants}}
    fake.let(lock={**LOCK, "a": horovod})
    engine = SpackEngine(subject, fake.spack)
    monkeypatch.setenv("SECRET", "hunter2")
    done, parts = record(engine)
    assert {name: getattr(done, name) for name in expected} == expected
    assert done.operations == operations
    assert done.controllers == tuple(n for n in operations if n in ("gloo", "mpi"))
    assert (done.environment, done.engine, done.version) == (subject.name, "spack", "0.28.1")
    assert done.frameworks == {"pytorch": "2.13.0"} and done.python == "3.8.18"
    assert done.compiler == Software("gcc", "12.2.0") and done.mpi == Software("openmpi", "4.1.8")
    assert done.changes == (Modification("prepend", "PATH", "/opt/bin"),)
    assert {part.name for part in parts if part.external} == {"python", "py-torch"}
    assert {part.name for part in parts if not part.external} == {"py-horovod"}
    assert done.modules == ("openmpi/4",) and done.digest == built.digest(subject, "spack")
    # the whole environment of the activation, of which a secret of the caller's is no part
    assert done.variables["SPACK_ENV"] == str(subject.directory)
    assert done.variables["SEEN"] == "" and "hunter2" not in json.dumps(done.variables)


def test_a_change_that_no_module_can_take_back_is_refused(fake, subject):
    fake.let(built={**BUILT, "other": ["RemovePath LD_PRELOAD"]})
    failure = record(SpackEngine(subject, fake.spack))
    assert failure.status == 12 and "LD_PRELOAD" in failure.error.message


def test_what_the_report_says_of_a_solution(fake, subject):
    solution = solved(SpackEngine(subject, fake.spack))
    versions = solution.versions()
    assert list(versions)[0] == "Horovod" and versions["PyTorch"] == "2.13.0"
    assert versions["Python"] == "3.8.18" and "TensorFlow" not in versions
    assert [node.name for node in solution.dag()] == ["py-horovod", "python", "py-torch"]
    assert solution.engine.commits()["Spack"] == fake.spack.pair.spack.commit


@pytest.fixture
def cached(workplace, monkeypatch):
    """Clones that are made at once; the addresses that they are from, by what they are."""
    made = {}

    def ensure(address, pin, destination, log):
        made[destination.parent.name] = (address, pin)
        destination.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(clone, "ensure", ensure)
    monkeypatch.setenv("SPACK_ROOT", "")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return made


@pytest.mark.parametrize("pair", [PINNED, OLD])
@pytest.mark.parametrize("addresses", [(), ("https://x/spack.git", "https://x/packages.git")])
def test_the_pinned_spack_is_cloned_from_its_address(cached, workplace, addresses, pair):
    wanted = "" if pair == PINNED else pair.name
    sources = Sources(*addresses, compiler_wrapper="https://x/wrapper.git", pair=wanted)
    found = location.locate(sources, workplace / "log")
    assert found.pair == pair and pair.spack.commit in str(found.root)
    spack, packages = addresses or (pinned().git["spack"], pinned().git["packages"])
    assert cached == {"spack": (spack, pair.spack), "packages": (packages, pair.packages)}
    assert found.addresses["compiler-wrapper"] == sources.compiler_wrapper


RULES = pathlib.Path("lib", "spack", "spack", "solver", "error_messages.lp")


def rules(fixed: bool) -> str:
    """The lines of Spack 1.2 that the fix is about, at the place where they are in the file."""
    hunk = location.FIX.read_text().partition("@@\n")[2].splitlines()
    lines = [line[1:] for line in hunk if fixed or not line.startswith("+")]
    return "\n".join([*["%"] * 123, *lines, ""])


@pytest.mark.parametrize("lacks", [True, False])
def test_a_spack_that_is_cloned_is_fixed_once(workplace, tmp_path, monkeypatch, lacks):
    """And only if it needs that; its commit stays what it is."""
    origin = tmp_path / "origin"
    (origin / RULES).parent.mkdir(parents=True)
    (origin / RULES).write_text(rules(fixed=False) if lacks else "% as in Spack 1.1\n")
    pin = Pin("1.2", commit(origin))
    monkeypatch.setattr(location, "_pair", lambda *_: Pair("pair", pin, pin))
    sources = Sources(str(origin), str(origin), pair="pair")
    for _ in range(2):
        found = location.locate(sources, workplace / "log")
        assert (found.root / RULES).read_text() == (
            rules(fixed=True) if lacks else "% as in Spack 1.1\n"
        )
        assert clone.commit(found.root) == pin.commit


@pytest.mark.parametrize("named", [True, False])
def test_a_supported_spack_that_is_there_is_taken(cached, fake, monkeypatch, named):
    monkeypatch.setenv("SPACK_ROOT", str(fake.home))
    sources = Sources(spack=str(fake.home)) if named else Sources()
    found = location.locate(sources, fake.home / "log")
    assert found.root == fake.home and found.pair == PINNED and "spack" not in cached
    # one that is not supported is passed over, unless it is named
    (fake.home / "lib/spack/spack/__init__.py").write_text('__version__ = "0.23.0"\n')
    if named:
        with pytest.raises(HvdError, match="0.23"):
            location.locate(sources, fake.home / "log")
    else:
        assert location.locate(sources, fake.home / "log").root != fake.home


def test_packages_decide_on_the_pair(cached, fake, monkeypatch):
    checkout = fake.home / "packages"
    (checkout / "repos/spack_repo/builtin").mkdir(parents=True)
    sources = Sources(packages=str(checkout))
    monkeypatch.setattr(clone, "commit", lambda directory: OLD.packages.commit)
    found = location.locate(sources, fake.home / "log")
    assert found.pair == OLD and found.packages == checkout
    contradiction = Sources(spack=str(fake.home), pair=OLD.name)
    monkeypatch.setattr(clone, "commit", lambda directory: "f" * 40)
    for wrong, named in ((sources, "ffffffffffff"), (contradiction, OLD.name)):
        with pytest.raises(HvdError, match=named):
            location.locate(wrong, fake.home / "log")


def test_spack_knows_of_no_module_that_is_loaded(fake, monkeypatch):
    """It takes one for one that cannot be loaded: https://github.com/spack/spack/pull/52752."""
    for name in ("LOADEDMODULES", "_LMFILES_", "_ModuleTable001_", "MODULEPATH"):
        monkeypatch.setenv(name, "impi/21.11")
    found = fake.spack.environment()
    assert {name for name, value in found.items() if value == "impi/21.11"} == {"MODULEPATH"}


def test_a_query_sees_nothing_that_modules_have_set(fake, subject, monkeypatch, tmp_path):
    """Else a script such as Intel MPI's vars.sh seems to change less, or all of PATH."""
    program = f"#!{sys.executable}\nimport json, os\nprint(json.dumps(dict(os.environ)))\n"
    (fake.home / "bin" / "spack").write_text(program)
    monkeypatch.setenv("I_MPI_ROOT", "/opt/impi")
    monkeypatch.setenv("PATH", f"/opt/impi/bin:{os.environ['PATH']}")
    found = fake.spack.ask(subject.directory, queries.BUILT, tmp_path / "log")
    assert "I_MPI_ROOT" not in found and "impi" not in found["PATH"]
