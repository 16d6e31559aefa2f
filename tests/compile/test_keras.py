"""What keras_3.patch makes of Horovod's Keras code, with TensorFlow but without the plugin."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.build.unbuilt import Unbuilt

CHECKS = pathlib.Path(__file__).with_name("keras_checks.py").read_text()
#: A Python that has TensorFlow, psutil and PyYAML; the tests' own has no need of them.
PYTHON = os.environ.get("HVD_TENSORFLOW_PYTHON", sys.executable)


@pytest.fixture(scope="module", params=["horovod.keras", "horovod.tensorflow.keras"])
def results(request, horovod_tree, tmp_path_factory):
    """What each check came to: nothing, or a traceback."""
    needs = "import psutil, tensorflow, yaml"
    found = subprocess.run([PYTHON, "-c", needs], capture_output=True, text=True)
    if found.returncode:
        reason = found.stderr.splitlines()[-1]
        pytest.skip(f"{reason}: name another by HVD_TENSORFLOW_PYTHON")
    tree = horovod_tree("0.28.1", "+mpi+gloo frameworks=tensorflow,keras")
    scratch = tmp_path_factory.mktemp("keras")
    stubs = {"cloudpickle.py": "from pickle import dump, dumps, load, loads\n"}
    output = Unbuilt(tree, scratch, stubs, PYTHON).run(CHECKS, request.param, scratch)
    return json.loads(output.splitlines()[-1])["results"]


@pytest.mark.parametrize("name", re.findall(r"^def (check_\w+)\(\)", CHECKS, re.MULTILINE))
def test_keras(results, name):
    """keras_3.patch"""
    assert not results[name], results[name]
