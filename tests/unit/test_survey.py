"""What a login node says, as commands of its scheduler, its modules and Spack print it."""

from __future__ import annotations

import os
import pathlib
import textwrap
from typing import Dict

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import batch
from hvd.model import environment, site
from hvd.solve import site_check
from hvd.survey import check, new
from hvd.survey import machine as survey
from tests.checkout import script
from tests.spack.conftest import gpu_stand_in
from tests.unit.launching import launch

#: Two partitions of Slurm; in one of them, two kinds of node.
SLURM = {
    "sinfo": """\
        batch*|up|24|(null)|2|64|2|128|257000
        gpu|up|4|gpu:v100:2(S:0-1)|1|32|2|64|257000
        gpu|up|30|gpu:nvidia_a100:4(S:0-3),nvme:1|1|64|1|64|515000
        old|inact|9|(null)|2|8|1|16|64000
        """,
    "scontrol show config": """\
        Configuration data as of 2026-11-24T12:00:00
        DefMemPerCPU            = 300
        MpiDefault              = none
        SelectType              = select/cons_tres
        SelectTypeParameters    = CR_CORE_MEMORY
        SLURM_VERSION           = 24.05.3
        """,
    "scontrol show partition --oneliner": """\
        PartitionName=batch AllowGroups=ALL Default=YES DefMemPerNode=UNLIMITED MaxMemPerCPU=1900
        PartitionName=gpu AllowGroups=ALL Default=NO DefMemPerCPU=8000 MaxMemPerNode=UNLIMITED
        """,
    "srun": """\
        MPI plugin types are...
        \tnone
        \tpmi2
        \tpmix
        specific pmix plugin versions available: pmix_v4,pmix_v5
        """,
}
PBS = {"pbsnodes": "x0\n     state = free\n", "qstat": "Queue: small\n"}
LSF = {"bqueues": "QUEUE_NAME PRIO\nbatch 30\n", "lshosts": "HOST_NAME type\nh01 LINUXPPC64LE\n"}
#: What Spack detects, with DIRECTORY for that of the machine.
DETECTED = """\
packages:
  gcc:
    externals:
    - spec: gcc@11.4.1 languages:='c,c++'
      prefix: /usr
      extra_attributes: {compilers: {c: /usr/bin/gcc, cxx: /usr/bin/g++}}
    - spec: gcc@12.2.0 languages:='c,c++,fortran'
      prefix: /usr
      extra_attributes:
        compilers: {c: /usr/bin/gcc, cxx: /usr/bin/g++, fortran: /usr/bin/gfortran}
  cmake: {externals: [{spec: cmake@3.25.1, prefix: /usr}]}
  gmake: {externals: [{spec: gmake@4.3, prefix: /usr}]}
  cuda: {externals: [{spec: cuda@12.4.131, prefix: DIRECTORY/cuda}]}
  nccl: {externals: [{spec: nccl@2.21.5, prefix: DIRECTORY/nccl}]}
"""


def machine(directory: pathlib.Path, said: Dict[str, str]) -> survey.Record:
    """A login node whose commands print these texts, by the words that they are called with."""
    for name in {words.split()[0] for words in said}:
        cases = []
        for words, text in said.items():
            if words.split()[0] == name:
                file = directory / f"{words}.txt"
                file.write_text(textwrap.dedent(text))
                cases.append(f"'{words}'*) exec cat '{file}';;")
        (directory / "bin" / name).unlink(missing_ok=True)
        script(directory / "bin" / name, f'case "{name} $*" in', *cases, "*) exit 1;; esac")
    return survey.Record({"PATH": f"{directory / 'bin'}:{os.defpath}"})


def test_slurm(tmp_path) -> None:
    answer = survey.scheduler(machine(tmp_path, SLURM))
    assert (answer.default, answer.mpi_types) == ("batch", ("none", "none", "pmi2", "pmix"))
    assert answer.partitions == {
        "batch": {
            **{"gpus": 0, "cores": 128, "threads_per_core": 1, "memory_gb": 251},
            # the partition allows less than the 2007 MB that a CPU could have
            "slurm": {"partition": "batch", "mem_per_cpu_mb": 1900},
            "cpus_per_rank": 64,
        },
        "gpu": {
            **{"gpus": 4, "gpu": "nvidia_a100", "cores": 64, "threads_per_core": 1},
            **{"memory_gb": 503, "cpus_per_rank": 16},
            "slurm": {"partition": "gpu", "gpus": "--gpus-per-node", "mem_per_cpu_mb": 8046},
        },
    }


@pytest.mark.parametrize("said", [{}, {"sinfo": "slurm_load_partitions: no\n"}, {"sinfo": ""}])
def test_no_answer(said, tmp_path) -> None:
    with pytest.raises(HvdError) as caught:
        survey.scheduler(machine(tmp_path, said))
    assert caught.value.remedy


class FakeSpack:
    """Answers as Spack does, for a machine in ``directory``."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.scope, self.detected = directory / "scope", DETECTED
        self.directory = directory
        self.scope.mkdir()

    def run(self, *words, log, variables=None, **more):
        if variables:
            scope = pathlib.Path(variables["SPACK_USER_CONFIG_PATH"])
            text = self.detected.replace("DIRECTORY", str(self.directory))
            (scope / "packages.yaml").write_text(text)
        return type("Done", (), {"output": "rocky9\n"})


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A login node of a machine with A100 GPUs, and a directory for its site."""
    monkeypatch.setenv("HVD_SITES", str(tmp_path / "sites"))
    python = gpu_stand_in(tmp_path / "torch")
    for name in ("cuda", "nccl"):
        (tmp_path / name).mkdir()
    record = machine(tmp_path, SLURM)
    record.shell = {**record.shell, "PATH": f"{python.parent}:{record.shell['PATH']}"}
    return tmp_path, record, FakeSpack(tmp_path)


def make(node, name: str = "moon", **options) -> None:
    directory, record, spack = node
    options = {"partition": "gpu", "target": "zen3", **options}
    new.make(name, "Tycho Computing Centre", record, spack, directory / "log", **options)


def packages(name: str = "moon") -> dict:
    return yaml.safe_load(site_check.file(name).read_text())["packages"]


def test_a_site_with_gpus(node) -> None:
    make(node)
    assert environment.load("moon-hvd").specs == [
        "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm frameworks:=pytorch os=rocky9 target=zen3"
    ]
    (nccl,) = packages()["nccl"]["externals"]
    assert nccl["spec"] == "nccl@2.21.5 +cuda cuda_arch=80 os=rocky9"
    assert nccl["dependencies"] == [{"spec": "cuda@12.4.131"}]
    assert "cuda_arch=80,90" in packages()["py-torch"]["externals"][0]["spec"]
    (gcc,) = packages()["gcc:"]["externals"]
    fortran = gcc["extra_attributes"]["compilers"]["fortran"]
    # a path that no other machine has, to the same program
    assert fortran.startswith(str(node[0])) and os.path.normpath(fortran) == "/usr/bin/gfortran"
    request = launch("moon-hvd", nodes=2, program=("python", "train.py"))
    lines = batch.script(request).splitlines()
    assert {"#SBATCH --gpus-per-node=4", "#SBATCH --mem-per-cpu=8046"} <= set(lines)
    assert "srun --mpi=pmix python train.py" in lines


def test_a_cray_with_rocm(node) -> None:
    directory, record, spack = node
    (module,) = directory.glob("torch/lib/python3*/site-packages/torch/__init__.py")
    text = module.read_text().replace("cuda = '12.4'", "cuda = None")
    module.write_text(text.replace("hip = None", "hip = '7.1'").replace("sm_80 sm_90", "gfx90a"))
    for name in new.ROCM:
        spack.detected += f"  {name}: {{externals: [{{spec: {name}@7.1.1, prefix: /opt/rocm}}]}}\n"
    record.shell.update(CRAY_MPICH_DIR="/opt/cray/pe/mpich", CRAY_MPICH_VERSION="9.1.0")
    said = {"sinfo": SLURM["sinfo"].replace("nvidia_a100", "mi250x"), "srun": "\tcray_shasta\n"}
    machine(directory, {**SLURM, **said})
    make(node)
    assert "+nccl~cuda+rocm" in environment.load("moon-hvd").specs[0]
    found = site_check.externals(site_check.file("moon"))
    assert set(new.ROCM) < set(found) and not {"cuda", "nccl"} & set(found)
    assert found["cray-mpich"] == [("9.1.0", "/opt/cray/pe/mpich", ())]
    for name in ("py-torch", "rccl"):
        assert "amdgpu_target=gfx90a" in packages()[name]["externals"][0]["spec"]
    moon = site.load("moon")
    assert moon.environments["moon-hvd"].operations == "rccl"
    assert moon.allowed["srun"].options == ("--mpi=cray_shasta",)
    assert ".checkout/environments/hardware/zen3-mi250x" in environment.load("moon-hvd").includes


@pytest.mark.parametrize(("said", "scheduler"), [(PBS, "pbs"), (LSF, "lsf")])
def test_what_a_scheduler_is_not_asked_is_to_do(said, scheduler, node) -> None:
    directory, record, _ = node
    for name in ("sinfo", "scontrol", "srun"):
        (directory / "bin" / name).unlink()
    machine(directory, said)
    make(node, gpu="cuda_arch=80")
    moon = site.load("moon")
    assert moon.scheduler == scheduler
    assert getattr(moon.partitions["gpu"], scheduler).queue == "gpu"
    text = site.file("moon").read_text()
    assert "# TODO: GPUs of a node" in text
    (sources,) = site.file("moon").parent.glob("sources/*.txt")
    assert all(each.partition("\n")[0] in sources.read_text() for each in said.values())


def test_layers_are_taken_or_made(node) -> None:
    sites = paths.environments()[0]
    make(node)
    includes = environment.load("moon-hvd").includes
    assert {"$HVD_SITES/sites/moon", ".checkout/environments/hardware/zen3-a100"} < set(includes)
    assert (sites / "moon-hvd" / ".checkout").resolve() == paths.ROOT
    make(node, name="sun", target="zen5")
    assert "$HVD_SITES/hardware/zen5-nvidia_a100" in environment.load("sun-hvd").includes
    file = sites / "hardware" / "zen5-nvidia_a100" / "packages.yaml"
    target, gpu = yaml.safe_load(file.read_text())["packages"]["all"]["require"]
    assert (target, gpu) == ("target=zen5", {"spec": "cuda_arch=80", "when": "+cuda"})


def test_a_site_is_written_whole_or_not_at_all(node) -> None:
    """Software is missing, a GPU is unknown; or what is made last has something in its way."""
    sites = paths.environments()[0]
    node[2].detected = DETECTED.replace("nccl:", "rccl:")
    with pytest.raises(HvdError, match="nccl"):
        make(node)
    node[2].detected = DETECTED
    machine(node[0], {"sinfo": SLURM["sinfo"].replace("nvidia_a100", "big")})
    with pytest.raises(HvdError, match="'big'"):
        make(node)
    assert not sites.exists()
    machine(node[0], SLURM)
    other = sites / "hardware" / "zen5-nvidia_a100" / "packages.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("packages: {}\n")
    with pytest.raises(HvdError, match="cannot write.*zen5-nvidia_a100"):
        make(node, target="zen5")
    assert [path for path in sites.rglob("*") if path.is_file()] == [other]
    make(node)
    with pytest.raises(HvdError, match="exists; not overwritten"):
        make(node)


#: Words of a command's output, what they become, and a fact with its state from then on.
CHANGES = (
    ("sinfo", ":4(S:0-3)", ":8(S:0-3)", "partition gpu: gpus", check.MOVED),
    ("sinfo", "gpu|up|30", "gpu|inact|30", "partition gpu: gpus", check.MOVED),
    ("sinfo", "|1|64|1|64|515000", "|1|48|1|48|515000", "partition gpu: cores", check.MOVED),
    ("sinfo", "|515000", "|257000", "partition gpu: memory_gb", check.MOVED),
    ("sinfo", "gpu|up", "gpus|up", "partition gpu", check.GONE),
    ("srun", "\tpmix", "\tcray", "srun --mpi", check.GONE),
    ("spack", "12.4.131", "12.6.20", "external cuda", check.MOVED),
    ("spack", "/nccl", "/nccl-2", "external nccl", check.UNKNOWN),
)


def test_what_has_changed_is_found(node) -> None:
    directory, record, spack = node
    make(node)
    texts = {**SLURM, "spack": spack.detected}
    for words, old, fresh, fact, state in CHANGES:
        assert old in texts[words]
        said = {**texts, words: texts[words].replace(old, fresh)}
        spack.detected = said.pop("spack")
        machine(directory, said)
        findings = check.examine(site.load("moon"), record, spack, directory / "log")
        found = {each[0]: each[1] for each in findings}
        assert found[fact] == state
        others = {found[each] for each in found if each.partition(":")[0] not in fact}
        assert others <= {check.SAME, check.UNKNOWN}
