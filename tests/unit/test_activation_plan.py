"""What activation changes, from what was written down of the build."""

import pytest

from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.deliver.publish import module as modulefile
from hvd.model import environment, site
from hvd.model.built import Modification
from tests import builds

CHANGES = (
    Modification("prepend", "PATH", "/usr/bin"),
    Modification("prepend", "PATH", "/torch/bin"),
    Modification("prepend", "PATH", "/horovod/bin"),
    Modification("prepend", "PYTHONPATH", "/horovod/lib/python3.11/site-packages"),
    Modification("prepend", "MANPATH", "/horovod/share/man"),
    Modification("append", "ACLOCAL_PATH", "/late"),
    Modification("prepend", "ACLOCAL_PATH", "/early"),
    Modification("append", "LDFLAGS", "-lz", " "),
    Modification("set", "CUDA_PATH", "none"),
)


@pytest.fixture
def of():
    """A function that gives an environment as if it had been built."""

    def make(name="local-hvd", **changes):
        fields = {"engine": "spack", "changes": CHANGES, **changes}
        return builds.record(environment=name, **fields)

    return make


def test_what_is_prepended_and_what_is_set(of):
    changes = {change.name: change for change in activation.plan(of()).changes}
    assert list(changes)[-1] == "PATH"
    lists = {name: change.value for name, change in changes.items() if change.kind == "prepend"}
    assert lists == {
        "ACLOCAL_PATH": "/early:/late",
        "MANPATH": "/horovod/share/man:",
        "PATH": "/horovod/bin:/torch/bin",
        "PYTHONPATH": "/horovod/lib/python3.11/site-packages",
    }
    values = {name: change.value for name, change in changes.items() if change.kind != "prepend"}
    assert values == {
        "CUDA_PATH": "none",
        "HVD_ACTIVE": "local-hvd-spack",
        "LDFLAGS": "-lz",
        "PYTHONHOME": "",
        "PYTHONNOUSERSITE": "1",
    }


def test_applied_to_an_environment(of):
    before = {"PATH": "/mine", "PYTHONHOME": "/other", "PYTHONPATH": "", "X": "y"}
    after = activation.plan(of()).applied(before)
    assert after["PATH"] == "/horovod/bin:/torch/bin:/mine"
    assert after["PYTHONPATH"] == "/horovod/lib/python3.11/site-packages"
    assert after["MANPATH"] == "/horovod/share/man:"
    assert "PYTHONHOME" not in after and after["X"] == "y"


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_site_adds_its_modules_and_fabric(of, nodes):
    built = of("frontier-hvd", gpu="rocm", operations=("gloo", "mpi", "nccl"))
    made = activation.plan(built, nodes=nodes)
    frontier = site.load("frontier")
    use = frontier.environments["frontier-hvd"]
    assert list(made.modules) == [word for load in use.run for word in load]
    values = {change.name: change.value for change in made.changes}
    fabric = frontier.variables(use.operations, nodes)
    assert fabric.items() <= values.items()
    assert values["NCCL_NET"] == {1: "Socket", 2: "OFI"}[nodes]


def test_an_environment_derived_from_a_sites_has_what_the_sites_has(of, tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    derived = environment.derive(environment.load("frontier-hvd"), "py-horovod ~nccl+rocm")
    assert activation.plan(of(derived.name)).modules == activation.plan(of("frontier-hvd")).modules


@pytest.mark.parametrize("name", environment.of_sites())
def test_a_shell_gets_what_a_module_gives(of, name):
    """All but what only a shell can do, and what depends on the job."""
    machine, use = activation.place(of(name))
    built = of(name, modules=("zlib/1.3",))
    module = modulefile.describe(built, machine, use)
    made = activation.plan(built)
    assert made.modules == module.depends_on
    values = {change.name: change.value for change in made.changes}
    for change in module.changes:
        assert change.value in values[change.name].split(change.separator)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((Modification("prepend", "PATH", "/usr/bin"),), "it adds nothing to PATH"),
        ((*CHANGES, Modification("set", "X", "a\0b")), "X has a NUL"),
    ],
)
def test_what_cannot_be_activated_is_refused(of, changes, message):
    with pytest.raises(HvdError, match=message) as raised:
        activation.plan(of(changes=changes))
    assert raised.value.remedy == "build it again: ./hvd build local-hvd --engine spack"
