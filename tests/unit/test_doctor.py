"""./hvd doctor: each fault, planted in the facts of a sound environment."""

import dataclasses
import json

import pytest

from hvd.core.check import State
from hvd.doctor import checks, gather
from hvd.doctor.gather import Gpus, Subject
from hvd.model import built
from hvd.smoke.run import Check
from tests import builds

BUILT = builds.record(
    environment="perlmutter-hvd",
    engine="spack",
    operations=("gloo", "mpi", "nccl"),
    nccl_link="shared",
    gpu="cuda",
    architectures=("80",),
    variables={"SPACK_ENV": "/env"},
)
IMPORTED = {
    "errors": {"horovod.torch": ""},
    "loaded": ["/opt/ompi/lib/libmpi.so.40", "/opt/nccl/lib/libnccl.so.2"],
    "mpi": "Open MPI v4.1.8",
}
MPIRUN, OTHER = ("/opt/ompi/bin/mpirun", "openmpi 4.1.8"), ("/opt/mpich/bin/mpirun", "mpich 4.1")
SITE = {"NCCL_NET": "AWS Libfabric"}
NO_DRIVER = Gpus(reason="nvidia-smi shows no GPU")


def imported(**changes):
    return {"imported": {**IMPORTED, **changes}}


def gpu(driver, *capabilities):
    return {"gpus": Gpus(driver, capabilities=capabilities)}


def of_build(**changes):
    return {"built": dataclasses.replace(BUILT, **changes)}


def of_shell(**shell):
    return {"shell": shell}


@pytest.fixture
def found(monkeypatch):
    """A function that examines a sound environment with changed facts; checks by name."""

    def examine(**changes):
        facts = {
            "shell": {"HVD_ACTIVE": BUILT.name, **SITE, "SLURM_JOB_ID": "1"},
            "own": {"PATH": "/own"},
            "after": {"PATH": "/own"},
            "python": "python",
            "gpus": Gpus((12, 4), capabilities=("8.0", "8.0")),
            "shadowed": {},
            "built": BUILT,
            "imported": IMPORTED,
            **changes,
        }
        subject = object.__new__(Subject)  # its facts are not asked for but planted
        mpirun = facts.pop("mpirun", MPIRUN), facts.pop("shell_mpirun", MPIRUN)
        subject.launcher = lambda variables: mpirun[variables is subject.shell]
        vars(subject).update(facts)
        framework = facts.pop("framework", ("12.4", ["80", "90"]))
        wrong = Check("check-build")
        wrong.fail(*facts.pop("check_build", ()))
        stale = facts.pop("changed", [])
        monkeypatch.setattr(built.Built, "changed", lambda self: stale)
        monkeypatch.setattr(checks, "check_build_items", lambda *arguments: wrong)
        monkeypatch.setattr(checks, "_framework", lambda subject: framework)
        return {each.name: each for each in checks.examine_built(subject)}

    # the site's network needs one variable
    site = type("Site", (), {"variables": staticmethod(lambda case, nodes: SITE)})
    monkeypatch.setattr(checks.activation, "place", lambda built: (site, None))
    return examine


def test_a_sound_environment_is_ok(found):
    assert {name: each.detail for name, each in found().items() if each.state != "ok"} == {}
    assert set(found()) == {name for name, _ in checks.CHECKS}
    plain = found(**of_build(gpu="", operations=("gloo",), controllers=("gloo",)))
    assert set(plain) == {"build", "import", "check-build", "fabric variables", "LD_LIBRARY_PATH"}


SHADOWED = {"libssl.so.3": ("/lib/libssl.so.3", "/conda/lib/libssl.so.3")}
HARMLESS = {"libz.so.1": ("/lib/libz.so.1", "/c/libz.so.1")}
SECOND_MPI = [*IMPORTED["loaded"], "/a/libmpi.so.12"]
SECOND_NCCL = [*IMPORTED["loaded"], "/a/libnccl.so.2"]


@pytest.mark.parametrize(
    ("check", "state", "said", "change"),
    [
        ("build", "warn", "package.py", {"changed": ["py_horovod/package.py", "b", "c"]}),
        ("import", "fail", "libx.so", imported(errors={"horovod.torch": "OSError: libx.so"})),
        ("check-build", "fail", "--fresh", {"check_build": ["built without nccl"]}),
        ("MPI linked", "fail", "mpich 4.1", {"mpirun": OTHER}),
        # one that does not say what it is, and is elsewhere
        ("MPI linked", "fail", OTHER[0], {"mpirun": (OTHER[0], "")}),
        ("MPI linked", "fail", OTHER[0], {"mpirun": OTHER, **imported(mpi="")}),
        ("MPI linked", "ok", MPIRUN[0], {"mpirun": (MPIRUN[0], "")}),
        ("MPI linked", "warn", "launcher", {"mpirun": ("", "")}),
        ("MPI linked", "fail", "--fresh", imported(loaded=IMPORTED["loaded"][1:])),
        ("MPI linked", "fail", "/libmpi.so.12", imported(loaded=SECOND_MPI)),
        ("MPI in PATH", "fail", "mpich 4.1", {"shell_mpirun": OTHER}),
        ("MPI in PATH", "fail", "mpich", {"shell_mpirun": OTHER, **of_shell(SPACK_ENV="/env")}),
        ("MPI in PATH", "warn", "activate", {"shell_mpirun": OTHER, **of_shell(SPACK_ENV="/o")}),
        ("MPI in PATH", "warn", "./hvd activate", {"shell_mpirun": ("", "")}),
        ("MPI in PATH", "ok", "", {"shell_mpirun": ("", ""), **of_shell()}),
        ("NCCL", "warn", "=shared", of_build(nccl_link="static")),
        ("NCCL", "fail", "libnccl.so", imported(loaded=IMPORTED["loaded"][:1])),
        ("NCCL", "fail", "/a/libnccl.so.2", imported(loaded=SECOND_NCCL)),
        ("CUDA", "fail", "11.8", gpu((11, 8), "8.0")),
        ("CUDA", "warn", "12.2", gpu((12, 2), "8.0")),
        ("CUDA", "not known", "no GPU", {"gpus": NO_DRIVER}),
        ("CUDA", "fail", "cuda_arch=90", gpu((12, 4), "9.0")),
        ("CUDA", "fail", "framework for 90", {"framework": ("12.4", ["90"])}),
        ("fabric variables", "fail", "NCCL_NET", of_shell(SLURM_JOB_ID="1")),
        ("fabric variables", "warn", "NCCL_NET", of_shell()),
        ("fabric variables", "warn", "NCCL_NET=Socket", of_shell(NCCL_NET="Socket")),
        ("LD_LIBRARY_PATH", "ok", "", of_shell(LD_LIBRARY_PATH="/conda/lib")),
        ("LD_LIBRARY_PATH", "fail", "/conda/lib",
         {"shadowed": SHADOWED, **of_shell(LD_LIBRARY_PATH="/conda/lib")}),
        ("LD_LIBRARY_PATH", "warn", "/c/libz.so.1",
         {"shadowed": HARMLESS, **of_shell(LD_LIBRARY_PATH="/c")}),
    ],
)  # fmt: skip
def test_a_fault_is_found(found, check, state, said, change):
    each = found(**change)[check]
    assert each.state.value == state, each
    assert said in f"{each.detail}; {each.remedy}"


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ("8.6", ["80"], True),
        ("8.0", ["86"], False),
        ("9.0", ["80"], False),
        ("9.0", ["90a"], True),
        ("12.1", ["120"], True),
        ("12.0", ["12"], False),
        ("10.3", ["100a"], False),
    ],
)
def test_which_gpus_run_code_for_which_architecture(capability, built_for, runs):
    assert checks._runs_on(capability, built_for) == runs


@pytest.mark.parametrize(
    ("header", "rows", "found"),
    [
        ("| Driver Version: 550.54 CUDA Version: 12.4 |", "8.0, NVIDIA A100-SXM4-40GB",
         Gpus((12, 4), "", ("8.0",), ("NVIDIA A100-SXM4-40GB",))),
        ("| CUDA Version: 13.0 |", "", Gpus((13, 0))),
        ("", "", NO_DRIVER),
    ],
)  # fmt: skip
def test_gpus_by_nvidia_smi(monkeypatch, header, rows, found):
    monkeypatch.setattr(
        gather.process, "output", lambda *words, env: rows if len(words) > 1 else header
    )
    assert gather.gpus({}) == found


@pytest.mark.parametrize("state", State)
def test_json_and_status_for_scripts(monkeypatch, hvd, state):
    made = checks.Check("x", state, "why", "do y")
    monkeypatch.setattr(checks, "examine", lambda *words: [made])
    done = hvd("doctor", "perlmutter-hvd", "--json")
    assert done.status == (state is State.fail)
    (found,) = json.loads(done.out)["checks"]
    assert found == {"name": "x", "state": state.value, "detail": "why", "remedy": "do y"}
    assert ("hint: do y" in hvd("doctor", "perlmutter-hvd").out) == (state is not State.ok)


def test_what_was_not_built_is_the_one_finding(hvd):
    done = hvd("doctor", "local-hvd", "--json")
    assert done.status == 1
    (found,) = json.loads(done.out)["checks"]
    assert "has not been built" in found["detail"] and "./hvd build" in found["remedy"]
