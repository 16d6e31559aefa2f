"""What is written down of a build, and what becomes of it when files change."""

import dataclasses
import json

import pytest

from hvd.core.errors import HvdError
from hvd.model import built, environment
from hvd.model.check_build import Expectation
from tests import builds


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    return tmp_path


def save(**changes):
    engine = changes.get("engine", "pip")
    inputs = built.inputs(environment.load("local-hvd"), engine)
    done = builds.record(**{"inputs": inputs, **changes})
    built.save(done)
    return done


def test_what_is_saved_is_found(state, monkeypatch):
    done = save(frameworks={"keras": "3.15.1", "pytorch": "2.13.0"}, operations=("gloo", "mpi"))
    monkeypatch.setenv("PATH", "/another/shells")
    found = built.find("local-hvd")
    assert found == done and found.name == "local-hvd-pip"
    assert found.changed() == []
    both = frozenset({"gloo", "mpi"})
    extras = frozenset({"keras"})
    assert found.expectation == Expectation(
        # Keras uses the plugin of TensorFlow
        "0.28.1",
        frozenset({"pytorch", "tensorflow"}),
        both,
        both,
        extras=extras,
    )
    variables = found.run_environment()
    assert variables["PATH"] == "/view/bin:/usr/bin:/bin"


def test_spack_comes_before_pip_and_the_option_before_both(state):
    for engine in ("pip", "spack"):
        save(engine=engine)
    assert built.find("local-hvd").engine == "spack"
    assert built.find("local-hvd", "pip").engine == "pip"


def test_a_changed_file_is_named(state):
    done = save()
    name = "packages/py_horovod/package.py"
    assert name in done.inputs
    built.save(dataclasses.replace(done, inputs={**done.inputs, name: "another"}))
    assert built.find("local-hvd").changed() == [name]


@pytest.mark.parametrize(
    ("engine", "message", "remedy"),
    [
        ("auto", "local-hvd has not been built$", "./hvd build local-hvd"),
        ("spack", "not been built by spack", "./hvd build local-hvd --engine spack"),
    ],
)
def test_what_was_not_built(state, engine, message, remedy):
    with pytest.raises(HvdError, match=message) as raised:
        built.find("local-hvd", engine)
    assert raised.value.remedy.endswith(remedy)


@pytest.mark.parametrize("lost", [None, "format", "inputs", "compiler", "modules"])
def test_a_record_that_cannot_be_read_is_one_error(state, lost):
    save()
    file = built.file("local-hvd", "pip")
    data = json.loads(file.read_text())
    data.pop(lost, None)
    file.write_text(json.dumps(data) if lost else "{")
    with pytest.raises(HvdError, match="built/local-hvd-pip.json") as raised:
        built.find("local-hvd")
    assert "./hvd build local-hvd" in raised.value.remedy
