"""What our patches change for Pythons and NumPys that are younger than Horovod."""

import json
import re
import sys
import sysconfig

import pytest

from tests.checkout import run

#: The first and the last release of each distutils*.patch.
WITHOUT_DISTUTILS = ["0.24.0", "0.25.0", "0.26.0", "0.28.1"]


def without_distutils(program):
    """A program as Python 3.12 runs it, setuptools or not."""
    return f"import sys; sys.modules['distutils'] = None\n{program}"


@pytest.mark.parametrize("version", WITHOUT_DISTUTILS)
def test_horovodrun_needs_no_distutils(unbuilt, version):
    """distutils*.patch"""
    horovod = unbuilt(version)
    program = without_distutils(
        "from horovod.common.util import is_version_greater_equal_than as at_least\n"
        "from horovod.runner import js_run, launch\n"
        "newer, older = at_least('2.10.0', '2.6.0'), at_least('2.4.1', '2.6.0')\n"
        "print(js_run.is_jsrun_installed(), newer, older)"
    )
    path = str(horovod.scratch / "bin")
    assert horovod.run(program, PATH=path).split() == ["False", "True", "False"]
    horovod.fake("jsrun")
    assert horovod.run(program, PATH=path).split() == ["True", "True", "False"]


@pytest.mark.parametrize("version", WITHOUT_DISTUTILS)
def test_nothing_imports_distutils(tree, version):
    """distutils*.patch; what needs a framework cannot be imported here"""
    sources = sorted((tree(version) / "horovod").glob("**/*.py"))
    imports = re.compile(r"^\s*(from|import) distutils", re.MULTILINE)
    assert sources
    assert [str(source) for source in sources if imports.search(source.read_text())] == []


@pytest.mark.parametrize("version", WITHOUT_DISTUTILS)
def test_the_pytorch_plugin_is_built_with_the_headers_of_python(tree, version):
    """distutils*.patch"""
    text = (tree(version) / "horovod" / "torch" / "CMakeLists.txt").read_text()
    program = re.search(r'-c "([^"]*)"\s+OUTPUT_VARIABLE PYTHON_INCLUDE_PATH', text).group(1)
    output = run([sys.executable, "-c", without_distutils(program)])
    assert output.strip() == sysconfig.get_path("include")


#: Spark's type conversions with the NumPy at hand; all of Spark's own are stand-ins.
SPARK = """
import importlib.util, json, sys
from unittest.mock import MagicMock
import numpy
for name in ("pyarrow", "pyspark.sql.functions", "pyspark.ml.linalg", "pyspark.sql.types",
             "pyspark.sql.pandas.types", "pyspark.sql", "horovod.spark.common._namedtuple_fix",
             "horovod.runner.common.util", "horovod.run.common.util", "horovod.spark.common"):
    while name:
        sys.modules.setdefault(name, MagicMock())
        name = name.rpartition(".")[0]
spec = importlib.util.spec_from_file_location("util", sys.argv[1])
util = importlib.util.module_from_spec(spec)
spec.loader.exec_module(util)
types = util.BooleanType, util.StringType
names = [util.numpy_type_to_str(t) for t in (bool, numpy.bool_, numpy.dtype("bool"), numpy.int32)]
print(json.dumps([[numpy.dtype(util.data_type_to_numpy(t)).kind for t in types], names]))
"""


@pytest.mark.parametrize(
    ("version", "kinds"),
    [("0.19.0", "bu"), ("0.22.1", "bu"), ("0.23.0", "bU"), ("0.28.1", "bU")],
)
def test_spark_columns_are_converted_with_this_numpy(tree, version, kinds):
    """numpy*.patch"""
    util = tree(version) / "horovod" / "spark" / "common" / "util.py"
    output = run([sys.executable, "-W", "ignore", "-c", SPARK, util])
    assert json.loads(output) == [[*kinds], ["Boolean", "Boolean", "Boolean", "Int"]]
