"""flatbuffers.patch: the bundled flatbuffers, whichever other one is installed."""

import pytest

from hvd.model import specs
from tests import plugin


@pytest.mark.parametrize("version", ["0.22.0", "0.28.1"])
def test_another_flatbuffers_on_the_machine_is_not_used(
    py_horovod, horovod_tree, request, tmp_path, version
):
    plugin.need(request, "build", "cmake", "c++")
    other = tmp_path / "include" / "flatbuffers" / "flatbuffers.h"
    other.parent.mkdir(parents=True)
    other.write_text("#error another flatbuffers\n")
    spec = specs.parse(f"py-horovod@{version} frameworks=tensorflow")
    tree = horovod_tree(version, *py_horovod.patches(spec))
    configured = plugin.tensorflow(
        tree, "2.4.4", tmp_path / "tensorflow", f"-DCMAKE_PREFIX_PATH={tmp_path}"
    )
    done = configured.compile("message.cc")
    assert done.returncode == 0, done.stderr
