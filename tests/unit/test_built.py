"""What is written down of a build, and what becomes of it when files change."""

import dataclasses
import json

import pytest

from hvd.core.errors import HvdError
from hvd.model import built, environment
from hvd.model.check_build import Expectation
from tests import builds


def save(**changes):
    engine = changes.get("engine", "pip")
    inputs = built.inputs(environment.load("local-hvd"), engine)
    done = builds.record(**{"inputs": inputs, **changes})
    built.save(done)
    return done


def test_what_is_saved_is_found(monkeypatch):
    done = save(frameworks={"keras": "3.15.1", "pytorch": "2.13.0"}, operations=("gloo", "mpi"))
    monkeypatch.setenv("PATH", "/another/shells")
    found = built.find("local-hvd")
    assert found == done and found.name == "local-hvd-pip"
    assert found.changed() == []
    both = {"gloo", "mpi"}
    # Keras uses the plugin of TensorFlow
    plugins = {"pytorch", "tensorflow"}
    assert found.expectation == Expectation("0.28.1", plugins, both, both, extras={"keras"})
    assert found.run_environment()["PATH"] == "/view/bin:/usr/bin:/bin"


def test_spack_comes_before_pip_and_the_option_before_both():
    for engine in ("pip", "spack"):
        save(engine=engine)
    assert built.find("local-hvd").engine == "spack"
    assert built.find("local-hvd", "pip").engine == "pip"


def test_a_changed_file_is_named():
    done = save()
    name = "packages/py_horovod/package.py"
    assert name in done.inputs
    built.save(dataclasses.replace(done, inputs={**done.inputs, name: "another"}))
    assert built.find("local-hvd").changed() == [name]


@pytest.mark.parametrize("engine", ["auto", "spack"])
def test_what_was_not_built(engine):
    with pytest.raises(HvdError, match="local-hvd has not been built") as raised:
        built.find("local-hvd", engine)
    option = "" if engine == "auto" else f" --engine {engine}"
    assert raised.value.remedy.endswith(f"./hvd build local-hvd{option}")


@pytest.mark.parametrize("lost", [None, "format", "inputs", "compiler", "modules"])
def test_a_record_that_cannot_be_read_is_one_error(lost):
    save()
    file = built.file("local-hvd", "pip")
    data = json.loads(file.read_text())
    data.pop(lost, None)
    file.write_text(json.dumps(data) if lost else "{")
    with pytest.raises(HvdError, match="built/local-hvd-pip.json") as raised:
        built.find("local-hvd")
    assert "./hvd build local-hvd" in raised.value.remedy
