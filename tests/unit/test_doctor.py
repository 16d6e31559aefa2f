"""./hvd doctor: each fault, planted in the facts of a sound environment."""

import dataclasses
import json

import pytest

from hvd.cli import main as cli
from hvd.doctor import checks, gather
from hvd.doctor.model import Extension, Facts, Gpus, Launcher, Spack, State, Version
from hvd.model import pins
from tests import builds

PAIR = pins.versions().pairs[0]
BUILT = builds.record(
    environment="perlmutter-hvd",
    engine="spack",
    operations=("gloo", "mpi", "nccl"),
    nccl_link="shared",
    gpu="cuda",
    architectures=("80",),
    variables={"SPACK_ENV": "/env"},
)
MPI = Version("openmpi", "4.1.8")
OTHER = Launcher("/opt/mpich/bin/mpirun", "/opt/mpich/bin/mpirun", Version("mpich", "4.1"))
EXTENSION = Extension(
    "/view/horovod/torch/mpi_lib_v2.so",
    ("libmpi.so.40", "libnccl.so.2"),
    frozenset({"MPI_Init", "ncclAllReduce"}),
)
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
    check_build=(),
    extensions=(EXTENSION,),
    loaded=("/opt/ompi/lib/libmpi.so.40", "/opt/nccl/lib/libnccl.so.2"),
    mpi=MPI,
    launcher=Launcher("/opt/ompi/bin/mpirun", "/opt/ompi/bin/mpirun", MPI),
    shell_launcher=Launcher("/opt/ompi/bin/mpirun", "/opt/ompi/bin/mpirun", MPI),
    compiler=("g++", True),
    toolkit="12.4",
    architectures=("80", "90"),
    gpus=Gpus((12, 4), capabilities=("8.0", "8.0")),
)
STATIC = Extension(EXTENSION.path, ("libmpi.so.40",), frozenset({"MPI_Init"}))
LOADED_TWICE = (*SOUND.loaded, "/torch/nvidia/nccl/lib/libnccl.so.2")
SHADOWED = {"libcrypto.so.3": ("/usr/lib64/libcrypto.so.3", "/conda/lib/libcrypto.so.3")}
LIBRARY_PATH = {**SOUND.shell, "LD_LIBRARY_PATH": "/conda/lib"}
NO_DRIVER = Gpus(reason="this machine has no CUDA driver")
WITHOUT_CUDA = dataclasses.replace(BUILT, gpu="", architectures=())
WITHOUT_VERSION = Launcher("/opt/mpt/bin/mpirun", "/opt/mpt/bin/mpirun")


def test_a_sound_environment_is_ok():
    found = checks.examine(SOUND)
    assert len(found) == 12
    assert {each.state for each in found} == {State.ok}, found


@pytest.mark.parametrize(
    ("change", "check", "state", "finding", "remedy"),
    [
        # build
        ({"changed": ("packages/py_horovod/package.py", "b", "c")},
         "build", "warn", "older than packages/py_horovod/package.py, b and 1 more",
         "./hvd build perlmutter-hvd --engine spack"),
        ({"imports": {"torch": "ImportError: libx.so"}},
         "import", "fail", "horovod.torch: ImportError: libx.so", "./hvd build"),
        ({"check_build": ("operations: expected nccl, which is not built",)},
         "check-build", "fail", "expected nccl", "--fresh"),
        # Spack
        ({"spack": dataclasses.replace(SOUND.spack, pair="spack-0.23")},
         "Spack and packages", "fail", "spack-0.23 is no supported pair", "use one of"),
        ({"spack": dataclasses.replace(SOUND.spack, pair="")},
         "Spack and packages", "not known", "not recorded", "./hvd setup"),
        ({"spack": dataclasses.replace(SOUND.spack, version="0.23")},
         "Spack and packages", "fail", "is 0.23", "--pair"),
        ({"spack": dataclasses.replace(SOUND.spack, version="")},
         "Spack and packages", "warn", "is gone: /spack", "./hvd setup"),
        ({"spack": dataclasses.replace(SOUND.spack, commits={"packages": "f" * 40})},
         "Spack and packages", "warn", "packages at commit ffffffffffff", "./hvd setup"),
        # MPI
        ({"launcher": OTHER}, "MPI linked", "fail",
         "/opt/mpich/bin/mpirun is mpich 4.1, and Horovod is linked with openmpi 4.1.8", "build"),
        ({"launcher": WITHOUT_VERSION, "mpi": None},
         "MPI linked", "fail", "is of another MPI than /opt/ompi/lib/libmpi.so.40", "build"),
        ({"launcher": None}, "MPI linked", "warn", "no mpirun", "launcher"),
        ({"loaded": ("/opt/nccl/lib/libnccl.so.2",)},
         "MPI linked", "fail", "no MPI library", "--fresh"),
        ({"loaded": (*SOUND.loaded, "/conda/lib/libmpi.so.12")},
         "MPI linked", "fail", "two MPI libraries", "one MPI"),
        ({"shell_launcher": OTHER}, "MPI in PATH", "fail", "mpich 4.1", "take it out of PATH"),
        ({"shell_launcher": OTHER, "shell": {"SPACK_ENV": "/env"}}, "MPI in PATH", "fail",
         "mpich 4.1", "take it out of PATH"),
        ({"shell_launcher": OTHER, "shell": {"SPACK_ENV": "/other"}}, "MPI in PATH", "warn",
         "mpich 4.1",
         "./hvd activate perlmutter-hvd"),
        ({"shell_launcher": None}, "MPI in PATH", "warn", "no mpirun", "activate"),
        ({"compiler": ("xlC_r", False)},
         "MPI compiler", "warn", "mpicxx calls xlC_r, which is not on PATH", "OMPI_CXX"),
        # NCCL
        ({"extensions": (STATIC,)}, "NCCL", "fail", "linked static", "nccl_link=shared"),
        ({"extensions": (STATIC,), "built": dataclasses.replace(BUILT, nccl_link="static")},
         "NCCL", "warn", "linked static", "nccl_link=shared"),
        ({"loaded": SOUND.loaded[:1]}, "NCCL", "fail", "libnccl.so is not loaded", "module"),
        ({"loaded": LOADED_TWICE}, "NCCL", "fail", "two in one process", "framework's own"),
        ({"extensions": ()}, "NCCL", "not known", "none of Horovod's libraries", ""),
        # GPUs
        ({"gpus": Gpus((11, 8), capabilities=("8.0",))},
         "CUDA driver", "fail", "supports CUDA 11.8, built with 12.4", "a newer driver"),
        ({"gpus": Gpus((12, 2), capabilities=("8.0",))},
         "CUDA driver", "warn", "supports CUDA 12.2, built with 12.4", "a newer driver"),
        ({"gpus": NO_DRIVER}, "CUDA driver", "not known", "no CUDA driver", "a node with a GPU"),
        ({"toolkit": None}, "CUDA driver", "not known", "is not known", ""),
        ({"gpus": Gpus((12, 4), capabilities=("9.0",))},
         "GPU architectures", "fail", "Horovod: 80; framework: 80 90; here: 90", "cuda_arch=90"),
        ({"gpus": Gpus((12, 4), capabilities=("8.0",)), "architectures": ("90",)},
         "GPU architectures", "fail", "framework: 90", "a framework that is built for this GPU"),
        ({"gpus": NO_DRIVER}, "GPU architectures", "not known", "Horovod: 80", "with a GPU"),
        # the shell
        ({"shell": {"SLURM_JOB_ID": "1"}},
         "fabric variables", "fail", "not set: NCCL_NET", "./hvd activate"),
        ({"shell": {}}, "fabric variables", "warn", "not set: NCCL_NET", "./hvd activate"),
        ({"shell": {"NCCL_NET": "Socket"}},
         "fabric variables", "warn", "NCCL_NET=Socket, the site's is AWS Libfabric", "activate"),
        ({"shell": LIBRARY_PATH, "shadowed": SHADOWED},
         "LD_LIBRARY_PATH", "fail",
         "/conda/lib/libcrypto.so.3 hides /usr/lib64/libcrypto.so.3", "/conda/lib"),
        ({"shell": LIBRARY_PATH, "shadowed": {"libz.so.1": ("/lib/libz.so.1", "/c/libz.so.1")}},
         "LD_LIBRARY_PATH", "warn", "/c/libz.so.1 hides", "/c"),
    ],
)  # fmt: skip
def test_a_fault_is_found(change, check, state, finding, remedy):
    found = {each.check: each for each in checks.examine(dataclasses.replace(SOUND, **change))}
    assert (found[check].state.value, found[check].check) == (state, check)
    assert finding in found[check].finding
    assert remedy in found[check].remedy


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


def test_without_cuda_there_is_nothing_to_know():
    facts = dataclasses.replace(SOUND, built=WITHOUT_CUDA, gpus=NO_DRIVER)
    found = {each.check: each for each in checks.examine(facts)}
    assert found["CUDA driver"].state is found["GPU architectures"].state is State.ok


@pytest.fixture
def ran(monkeypatch, capsys):
    """A function that runs ./hvd doctor over made-up facts; status and output."""

    def run(facts, *arguments):
        monkeypatch.setattr(gather, "facts", lambda name, engine, shell: facts)
        with pytest.raises(SystemExit) as ended:
            cli.main(["doctor", "perlmutter-hvd", *arguments])
        return ended.value.code or 0, capsys.readouterr().out

    return run


def test_json_and_status_for_scripts(ran):
    status, text = ran(SOUND, "--json")
    assert status == 0
    assert {each["state"] for each in json.loads(text)["checks"]} == {"ok"}
    status, text = ran(dataclasses.replace(SOUND, launcher=OTHER), "--json")
    assert status == 1
    failed = [each for each in json.loads(text)["checks"] if each["state"] == "fail"]
    assert [each["check"] for each in failed] == ["MPI linked"]
    assert failed[0]["remedy"]


def test_a_warning_is_no_failure(ran):
    status, text = ran(dataclasses.replace(SOUND, changed=("spack.yaml",)))
    assert status == 0
    assert "older than spack.yaml" in text and "hint: ./hvd build" in text


def test_what_was_not_built_is_the_one_finding(ran):
    facts = Facts("perlmutter-hvd", not_built="has not been built", remedy="build it")
    status, text = ran(facts, "--json")
    assert status == 1
    assert [each["finding"] for each in json.loads(text)["checks"]] == ["has not been built"]
