"""./hvd kernel: what is installed, and what is not replaced."""

import json

import pytest

from hvd.core.errors import HvdError
from hvd.deliver import kernel
from hvd.model.built import Modification
from tests import builds
from tests.checkout import script


@pytest.fixture
def install(tmp_path):
    """A function that installs a kernel below tmp_path; its Python ends with ``status``."""

    def run(status=0, name="hvd-local", prefix=tmp_path, **shell):
        python = script(tmp_path / "bin" / "python", f"exit {status}")
        done = builds.record(changes=(Modification("prepend", "PATH", str(python.parent)),))
        return kernel.install(done, name, prefix, {"PATH": "/usr/bin:/bin", **shell})

    return run


def test_a_kernel_is_installed_and_replaced(install, tmp_path):
    directory = [install(), install()][1]
    assert directory == tmp_path / "share" / "jupyter" / "kernels" / "hvd-local"
    content = json.loads((directory / "kernel.json").read_text())
    assert content["display_name"] == "Horovod (local-hvd, pip)"
    assert "{resource_dir}/activate.sh" in content["argv"]
    assert f"export PATH={tmp_path}/bin" in (directory / "activate.sh").read_text()
    own = install(prefix=None, XDG_DATA_HOME=str(tmp_path / "home"))
    assert own == tmp_path / "home" / "jupyter" / "kernels" / "hvd-local"


def test_what_cannot_be_installed(install, tmp_path):
    with pytest.raises(HvdError, match="--name: 'a b'"):
        install(name="a b")
    with pytest.raises(HvdError, match="has no ipykernel") as caught:
        install(status=1)
    assert caught.value.remedy == f"{tmp_path}/bin/python -m pip install ipykernel"
    file = tmp_path / "share" / "jupyter" / "kernels" / "hvd-local" / "kernel.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(HvdError, match=str(file.parent)):
        install()
    assert file.read_text() == "{}" and not file.with_name("activate.sh").exists()
