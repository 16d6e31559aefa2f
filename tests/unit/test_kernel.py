"""./hvd kernel: what is installed, and what is not replaced."""

import json

import pytest

from hvd.core.errors import HvdError
from hvd.deliver import kernel
from hvd.model.built import Modification
from tests import builds
from tests.checkout import script


def test_a_kernel_is_installed_and_replaced_and_another_s_is_not(tmp_path):
    python = script(tmp_path / "bin" / "python", 'exec "$0.real" "$@"')
    done = builds.record(changes=(Modification("prepend", "PATH", str(python.parent)),))

    def install(name="hvd-local", prefix=tmp_path, **shell):
        return kernel.install(done, name, prefix, {"PATH": "/usr/bin:/bin", **shell})

    with pytest.raises(HvdError, match="has no ipykernel") as caught:
        install()
    assert caught.value.remedy == f"{python} -m pip install ipykernel"
    script(python.with_name("python.real"))
    with pytest.raises(HvdError, match="--name: 'a b'"):
        install("a b")
    directory = [install(), install()][1]
    assert directory == tmp_path / "share" / "jupyter" / "kernels" / "hvd-local"
    content = json.loads((directory / "kernel.json").read_text())
    assert "{resource_dir}/activate.sh" in content["argv"]
    assert f"export PATH={tmp_path}/bin" in (directory / "activate.sh").read_text()
    own = install(prefix=None, XDG_DATA_HOME=str(tmp_path / "home"))
    assert own == tmp_path / "home" / "jupyter" / "kernels" / "hvd-local"
    (directory / "kernel.json").write_text("{}")
    with pytest.raises(HvdError, match=str(directory)):
        install()
    assert (directory / "kernel.json").read_text() == "{}"
