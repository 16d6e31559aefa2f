"""What a login node says, as commands of its scheduler, its modules and Spack would print it."""

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
from hvd.model.site import Lsf, Pbs
from hvd.solve import site_check
from hvd.survey import check, new, schedulers, software
from hvd.survey.check import State
from hvd.survey.record import Record
from tests.checkout import script
from tests.spack.conftest import gpu_stand_in
from tests.unit.launching import launch

#: Two partitions of Slurm; in one of them, two kinds of node.
SLURM = {
    "sinfo": """\
        batch*|up|24|rome,ib|(null)|2|64|2|128|257000
        gpu|up|4|milan,ib|gpu:v100:2(S:0-1)|1|32|2|64|257000
        gpu|up|30|milan,ib|gpu:nvidia_a100:4(S:0-3),nvme:1|1|64|1|64|515000
        old|inact|9|(null)|(null)|2|8|1|16|64000
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
        PartitionName=old AllowGroups=ALL Default=NO DefMemPerNode=UNLIMITED State=INACTIVE
        """,
    "srun": """\
        MPI plugin types are...
        \tnone
        \tpmi2
        \tpmix
        specific pmix plugin versions available: pmix_v4,pmix_v5
        """,
}
PBS = {
    "pbsnodes": """\
        {"pbs_version": "2022.1.1", "nodes": {
          "x0": {"resources_available": {"ncpus": 64, "mem": "527672492kb", "Qlist": "debug"}},
          "x1": {"resources_available": {"ncpus": 64, "mem": "527672492kb", "ngpus": 4}},
          "x2": {"resources_available": {"ncpus": 64, "mem": "527672492kb", "ngpus": 4}},
          "x3": {"Error": "Unknown node"}}}
        """,
    "qstat": """\
        {"Queue": {"prod": {"queue_type": "Route", "enabled": "True"},
                   "small": {"queue_type": "Execution", "enabled": "True", "started": "True"}}}
        """,
}
LSF = {
    "bqueues": """\
        QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP  RSV
        batch            30  Open:Active       -    -    -    -     0     0     0     0    0
        """,
    "lshosts -w": """\
        HOST_NAME      type    model  cpuf ncpus maxmem maxswp server RESOURCES
        login1         LINUXPPC64LE POWER9 250.0 - - - No ()
        h01            LINUXPPC64LE POWER9 250.0 176 605.6G 4G Yes (CN)
        h02            LINUXPPC64LE POWER9 250.0 176 605.6G 4G Yes (CN)
        """,
    "lshosts -gpu": """\
        HOST_NAME   gpu_id       gpu_model   gpu_driver   gpu_factor      numa_id
        h01              0   TeslaV100_SXM2       418.67          7.0            0
                         1   TeslaV100_SXM2       418.67          7.0            8
        h02              0   TeslaV100_SXM2       418.67          7.0            0
                         1   TeslaV100_SXM2       418.67          7.0            8
        """,
}


def machine(directory: pathlib.Path, said: Dict[str, str]) -> Record:
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
    return Record({"PATH": f"{directory / 'bin'}:{os.defpath}"})


def test_slurm(tmp_path) -> None:
    found = schedulers.find(machine(tmp_path, SLURM))
    assert (found.default, found.mpi_types) == ("batch", ("none", "pmi2", "pmix"))
    assert [kind.nodes for kind in found.queues()["gpu"]] == [30, 4]
    batch_, gpu = (found.queues()[name][0].partition for name in ("batch", "gpu"))
    assert set(found.queues()) == {"batch", "gpu"}
    assert (batch_.cores, batch_.threads_per_core, batch_.cpus_per_rank) == (128, 1, 64)
    # the partition allows less than the 2007 MB that a CPU could have
    assert batch_.slurm.mem_per_cpu_mb == 1900 and batch_.slurm.gpus == ""
    assert (gpu.gpus, gpu.gpu, gpu.cpus_per_rank) == (4, "nvidia_a100", 16)
    assert gpu.slurm.gpus == "--gpus-per-node" and gpu.memory_gb == 503
    # it gives 8000 MB unasked, and 8046 are there
    assert gpu.slurm.mem_per_cpu_mb == 8046


@pytest.mark.parametrize(
    ("config", "own", "asked"),
    [
        ({"SelectTypeParameters": "CR_Core", "DefMemPerCPU": "300"}, {}, 0),
        ({"SelectTypeParameters": "CR_Core_Memory", "DefMemPerNode": "UNLIMITED"}, {}, 0),
        ({"SelectTypeParameters": "CR_Core_Memory", "DefMemPerNode": "8000"}, {}, 2000),
        ({"SelectTypeParameters": "CR_Core_Memory"}, {"DefMemPerCPU": "2000"}, 0),
        (
            {"SelectTypeParameters": "CR_CPU_Memory", "DefMemPerCPU": "9"},
            {"DefMemPerNode": "16000"},
            0,
        ),
    ],
)
def test_the_memory_that_a_job_has_to_ask_for(config, own, asked) -> None:
    assert schedulers._memory(config, own, cpus=8, memory=16000) == asked


def test_pbs(tmp_path) -> None:
    found = schedulers.find(machine(tmp_path, PBS))
    (kind,) = found.kinds
    assert (kind.queue, kind.nodes, kind.partition.gpus) == ("small", 2, 4)
    assert kind.partition.pbs == Pbs("small", chunk="ncpus=64:ngpus=4")
    assert kind.partition.memory_gb == 503


def test_lsf(tmp_path) -> None:
    (kind,) = schedulers.find(machine(tmp_path, LSF)).kinds
    assert (kind.queue, kind.nodes, kind.partition.gpus) == ("batch", 2, 2)
    assert kind.partition.lsf == Lsf("batch", slots=176, launch_slots=0)
    assert kind.partition.gpu == "TeslaV100_SXM2" and kind.partition.memory_gb == 606


@pytest.mark.parametrize("said", [{}, {"sinfo": "slurm_load_partitions: no\n"}, {"pbsnodes": "x"}])
def test_no_answer(said, tmp_path) -> None:
    with pytest.raises(HvdError) as caught:
        schedulers.find(machine(tmp_path, said))
    assert caught.value.remedy


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


class FakeSpack:
    """Answers as Spack does, for a machine in ``directory``."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.scope, self.detected = (
            directory / "scope",
            DETECTED.replace("DIRECTORY", f"{directory}"),
        )
        self.scope.mkdir()

    def run(self, *words, log, variables=None, **more):
        if variables:
            scope = pathlib.Path(variables["SPACK_USER_CONFIG_PATH"])
            (scope / "packages.yaml").write_text(self.detected)
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
    wanted = new.Wanted(name, "Tycho Computing Centre", partition="gpu", **options)
    new.make(wanted, record, spack, directory / "log")


def test_a_site_with_gpus(node) -> None:
    make(node, target="zen3")
    assert environment.load("moon-hvd").specs == [
        "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm frameworks:=pytorch os=rocky9 target=zen3"
    ]
    packages = yaml.safe_load(site_check.file("moon").read_text())["packages"]
    (nccl,) = packages["nccl"]["externals"]
    assert nccl["spec"] == "nccl@2.21.5 +cuda cuda_arch=80 os=rocky9"
    assert nccl["dependencies"] == [{"spec": "cuda@12.4.131"}]
    assert "cuda_arch=80,90" in packages["py-torch"]["externals"][0]["spec"]
    (gcc,) = packages["gcc:"]["externals"]
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
    for name in software.ROCM:
        spack.detected += f"  {name}: {{externals: [{{spec: {name}@7.1.1, prefix: /opt/rocm}}]}}\n"
    record.shell.update(CRAY_MPICH_DIR="/opt/cray/pe/mpich", CRAY_MPICH_VERSION="9.1.0")
    said = {"sinfo": SLURM["sinfo"].replace("nvidia_a100", "mi250x"), "srun": "\tcray_shasta\n"}
    machine(directory, {**SLURM, **said})
    make(node, target="zen3")
    assert "+nccl~cuda+rocm" in environment.load("moon-hvd").specs[0]
    found = site_check.externals(site_check.file("moon"))
    assert set(software.ROCM) < set(found) and not {"cuda", "nccl"} & set(found)
    assert found["cray-mpich"] == [("9.1.0", "/opt/cray/pe/mpich", ())]
    packages = yaml.safe_load(site_check.file("moon").read_text())["packages"]
    for name in ("py-torch", "rccl"):
        assert "amdgpu_target=gfx90a" in packages[name]["externals"][0]["spec"]
    machine_ = site.load("moon")
    assert machine_.environments["moon-hvd"].operations == "rccl"
    assert machine_.allowed["srun"].options == ("--mpi=cray_shasta",)
    assert ".checkout/environments/hardware/zen3-mi250x" in environment.load("moon-hvd").includes


def test_layers_are_taken_or_made(node) -> None:
    sites = paths.environments()[0]
    make(node, target="zen3")
    includes = environment.load("moon-hvd").includes
    assert {"$HVD_SITES/sites/moon", ".checkout/environments/hardware/zen3-a100"} < set(includes)
    assert (sites / "moon-hvd" / ".checkout").resolve() == paths.ROOT
    make(node, name="sun", target="zen5")
    assert "$HVD_SITES/hardware/zen5-nvidia_a100" in environment.load("sun-hvd").includes
    file = sites / "hardware" / "zen5-nvidia_a100" / "packages.yaml"
    target, gpu = yaml.safe_load(file.read_text())["packages"]["all"]["require"]
    assert (target, gpu) == ("target=zen5", {"spec": "cuda_arch=80", "when": "+cuda"})


def test_nothing_is_left_of_a_site_that_fails(node) -> None:
    sites = paths.environments()[0]
    node[2].detected = DETECTED.replace("nccl:", "rccl:")
    with pytest.raises(HvdError, match="nccl"):
        make(node)
    assert not sites.exists()


def test_all_is_put_in_its_place_or_nothing(node) -> None:
    """What is moved last has something in its way."""
    other = paths.environments()[0] / "hardware" / "zen5-nvidia_a100" / "packages.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("packages: {}\n")
    with pytest.raises(HvdError, match="cannot write.*zen5-nvidia_a100"):
        make(node, target="zen5")
    left = [path for path in paths.environments()[0].rglob("*") if path.is_file()]
    assert left == [other]


def test_a_gpu_of_no_known_model(node) -> None:
    machine(node[0], {"sinfo": SLURM["sinfo"].replace("nvidia_a100", "big")})
    with pytest.raises(HvdError, match="'big'") as caught:
        make(node)
    assert "--gpu" in caught.value.remedy


#: Words of a command's output, what they become, and a fact with its state from then on.
CHANGES = (
    ("sinfo", ":4(S:0-3)", ":8(S:0-3)", "partition gpu: GPUs", State.moved),
    ("sinfo", "nvidia_a100", "h100", "partition gpu: GPU", State.moved),
    ("sinfo", "gpu|up|30", "gpu|inact|30", "partition gpu: GPUs", State.moved),
    ("sinfo", "|1|64|1|64|515000", "|1|48|1|48|515000", "partition gpu: cores", State.moved),
    ("sinfo", "|515000", "|257000", "partition gpu: memory", State.moved),
    ("srun", "\tpmix", "\tcray", "srun --mpi", State.gone),
    ("spack", "12.4.131", "12.6.20", "external cuda", State.moved),
    ("spack", "12.4.131", "12.4.99", "external cuda", State.same),
    ("spack", "/nccl", "/nccl-2", "external nccl", State.unknown),
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
        assert {each.fact: each.state for each in findings}[fact] == state
        others = {each.state for each in findings if each.fact.partition(":")[0] not in fact}
        assert others <= {State.same, State.unknown}
