"""./hvd doctor: each fault, planted in the facts of a sound environment."""

import dataclasses
import json

import pytest

from hvd.doctor import checks, gather
from hvd.doctor.checks import State
from hvd.doctor.gather import Facts, Gpus, Launcher, Spack
from hvd.model.versions import pinned
from tests import builds

PAIR = pinned().pairs[0]
BUILT = builds.record(
    environment="perlmutter-hvd",
    engine="spack",
    operations=("gloo", "mpi", "nccl"),
    nccl_link="shared",
    gpu="cuda",
    architectures=("80",),
    variables={"SPACK_ENV": "/env"},
)
MPIRUN = Launcher("/opt/ompi/bin/mpirun", "openmpi 4.1.8")
OTHER = Launcher("/opt/mpich/bin/mpirun", "mpich 4.1")
SOUND = Facts(
    "perlmutter-hvd",
    BUILT,
    shell={"HVD_ACTIVE": BUILT.name, "NCCL_NET": "AWS Libfabric", "SLURM_JOB_ID": "1"},
    fabric={"NCCL_NET": "AWS Libfabric"},
    spack=Spack(
        PAIR.name,
        "/spack",
        PAIR.spack.version,
        {"spack": PAIR.spack.commit, "packages": PAIR.packages.commit},
    ),
    imports={"torch": ""},
    needed=frozenset({"libmpi.so.40", "libnccl.so.2", "ncclAllReduce"}),
    loaded=("/opt/ompi/lib/libmpi.so.40", "/opt/nccl/lib/libnccl.so.2"),
    mpi="openmpi 4.1.8",
    launcher=MPIRUN,
    shell_launcher=MPIRUN,
    compiler=("g++", True),
    transports=frozenset({"pml ob1", "pml ucx"}),
    adapters=("mlx5_0",),
    toolkit="12.4",
    architectures=("80", "90"),
    gpus=Gpus((12, 4), capabilities=("8.0", "8.0")),
)
STATIC = frozenset({"libmpi.so.40", "MPI_Init"})
LIBRARY_PATH = {**SOUND.shell, "LD_LIBRARY_PATH": "/conda/lib"}
NO_DRIVER = Gpus(reason="this machine has no CUDA driver")


def spack(**changes):
    return {"spack": dataclasses.replace(SOUND.spack, **changes)}


def test_a_sound_environment_is_ok():
    found = checks.examine(SOUND)
    assert len(found) == 13
    assert {each.state for each in found} == {State.ok}, found


@pytest.mark.parametrize(
    ("check", "state", "said", "change"),
    [
        ("build", "warn", "package.py", {"changed": ("py_horovod/package.py", "b", "c")}),
        ("import", "fail", "libx.so", {"imports": {"torch": "ImportError: libx.so"}}),
        ("check-build", "fail", "--fresh", {"check_build": ("operations: expected nccl",)}),
        ("Spack and packages", "fail", "spack-0.23", spack(pair="spack-0.23")),
        ("Spack and packages", "not known", "./hvd setup", spack(pair="")),
        ("Spack and packages", "fail", "is 0.23", spack(version="0.23")),
        ("Spack and packages", "warn", "/spack", spack(version="")),
        ("Spack and packages", "warn", "f" * 12, spack(commits={"packages": "f" * 40})),
        ("MPI linked", "fail", "mpich 4.1", {"launcher": OTHER}),
        # one that does not say what it is, and is elsewhere
        ("MPI linked", "fail", OTHER.path, {"launcher": Launcher(OTHER.path)}),
        ("MPI linked", "fail", OTHER.path, {"launcher": OTHER, "mpi": ""}),
        ("MPI linked", "ok", MPIRUN.path, {"launcher": Launcher(MPIRUN.path)}),
        ("MPI linked", "warn", "launcher", {"launcher": None}),
        ("MPI linked", "fail", "--fresh", {"loaded": SOUND.loaded[1:]}),
        ("MPI linked", "fail", "/libmpi.so.12", {"loaded": (*SOUND.loaded, "/a/libmpi.so.12")}),
        ("MPI in PATH", "fail", "mpich 4.1", {"shell_launcher": OTHER}),
        ("MPI in PATH", "fail", "mpich 4.1",
         {"shell_launcher": OTHER, "shell": {"SPACK_ENV": "/env"}}),
        ("MPI in PATH", "warn", "./hvd activate perlmutter-hvd",
         {"shell_launcher": OTHER, "shell": {"SPACK_ENV": "/other"}}),
        ("MPI in PATH", "warn", "./hvd activate", {"shell_launcher": None}),
        ("MPI in PATH", "ok", "", {"shell_launcher": None, "shell": {}}),
        ("MPI in PATH", "not known", "", {"loaded": ()}),
        ("MPI compiler", "warn", "xlC_r", {"compiler": ("xlC_r", False)}),
        ("MPI compiler", "not known", "mpicxx", {"compiler": None}),
        ("MPI transport", "warn", "fabrics=ucx", {"transports": frozenset({"pml ob1"})}),
        ("MPI transport", "ok", "TCP", {"transports": frozenset({"pml ob1"}), "adapters": ()}),
        ("MPI transport", "warn", "unset", {"shell": {"OMPI_MCA_pml": "ob1"}}),
        ("MPI transport", "ok", "=ucx", {"shell": {"OMPI_MCA_pml": "ucx"}}),
        ("MPI transport", "not known", "ompi_info", {"transports": frozenset()}),
        ("MPI transport", "ok", "mpich", {"mpi": "mpich 4.1", "launcher": OTHER}),
        ("NCCL", "fail", "nccl_link=shared", {"needed": STATIC}),
        ("NCCL", "warn", "nccl_link=shared",
         {"needed": STATIC, "built": dataclasses.replace(BUILT, nccl_link="static")}),
        ("NCCL", "fail", "libnccl.so", {"loaded": SOUND.loaded[:1]}),
        ("NCCL", "fail", "/a/libnccl.so.2", {"loaded": (*SOUND.loaded, "/a/libnccl.so.2")}),
        ("NCCL", "not known", "", {"needed": frozenset()}),
        ("CUDA driver", "fail", "11.8", {"gpus": Gpus((11, 8), capabilities=("8.0",))}),
        ("CUDA driver", "warn", "12.2", {"gpus": Gpus((12, 2), capabilities=("8.0",))}),
        ("CUDA driver", "not known", "no CUDA driver", {"gpus": NO_DRIVER}),
        ("CUDA driver", "not known", "", {"toolkit": None}),
        ("CUDA driver", "ok", "",
         {"gpus": NO_DRIVER, "built": dataclasses.replace(BUILT, gpu="", architectures=())}),
        ("CUDA driver", "not known", "ROCm", {"built": dataclasses.replace(BUILT, gpu="rocm")}),
        ("GPU architectures", "fail", "cuda_arch=90",
         {"gpus": Gpus((12, 4), capabilities=("9.0",))}),
        ("GPU architectures", "fail", "framework: 90", {"architectures": ("90",)}),
        ("GPU architectures", "not known", "Horovod: 80", {"gpus": NO_DRIVER}),
        ("GPU architectures", "ok", "",
         {"gpus": NO_DRIVER, "built": dataclasses.replace(BUILT, gpu="", architectures=())}),
        ("fabric variables", "fail", "NCCL_NET", {"shell": {"SLURM_JOB_ID": "1"}}),
        ("fabric variables", "warn", "NCCL_NET", {"shell": {}}),
        ("fabric variables", "warn", "NCCL_NET=Socket", {"shell": {"NCCL_NET": "Socket"}}),
        ("LD_LIBRARY_PATH", "ok", "", {"shell": LIBRARY_PATH}),
        ("LD_LIBRARY_PATH", "fail", "/conda/lib",
         {"shell": LIBRARY_PATH,
          "shadowed": {"libssl.so.3": ("/lib/libssl.so.3", "/conda/lib/libssl.so.3")}}),
        ("LD_LIBRARY_PATH", "warn", "/c/libz.so.1",
         {"shell": LIBRARY_PATH, "shadowed": {"libz.so.1": ("/lib/libz.so.1", "/c/libz.so.1")}}),
    ],
)  # fmt: skip
def test_a_fault_is_found(check, state, said, change):
    found = {each.check: each for each in checks.examine(dataclasses.replace(SOUND, **change))}
    assert found[check].state.value == state
    assert said in f"{found[check].finding}; {found[check].remedy}"


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ("8.0", ["80"], True),
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
    facts = dataclasses.replace(
        SOUND,
        built=dataclasses.replace(BUILT, architectures=tuple(built_for)),
        architectures=(),
        gpus=Gpus((13, 0), capabilities=(capability,)),
    )
    found = next(f for f in checks.examine(facts) if f.check == "GPU architectures")
    assert found.state is (State.ok if runs else State.fail)


@pytest.fixture
def ran(monkeypatch, hvd):
    """A function that runs ./hvd doctor over made-up facts."""

    def run(facts, *arguments):
        monkeypatch.setattr(gather, "facts", lambda name, engine, shell: facts)
        return hvd("doctor", "perlmutter-hvd", *arguments)

    return run


def test_json_and_status_for_scripts(ran):
    assert ran(SOUND, "--json").status == 0
    done = ran(dataclasses.replace(SOUND, launcher=OTHER), "--json")
    assert done.status == 1
    (failed,) = [each for each in json.loads(done.out)["checks"] if each["state"] == "fail"]
    assert failed["check"] == "MPI linked" and failed["remedy"]


def test_a_warning_is_no_failure(ran):
    done = ran(dataclasses.replace(SOUND, changed=("spack.yaml",)))
    assert done.status == 0
    assert "spack.yaml" in done.out and "hint: ./hvd build" in done.out


def test_what_was_not_built_is_the_one_finding(ran):
    done = ran(Facts("x", not_built="has not been built", remedy="build it"), "--json")
    assert done.status == 1
    assert [each["finding"] for each in json.loads(done.out)["checks"]] == ["has not been built"]
