"""ReFrame's settings and the job scripts of every site, without submitting any."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import yaml

from hvd.cli import main as cli
from hvd.core import paths
from hvd.model import environment, site
from hvd.model.site import Bandwidth
from hvd.reframe import systems
from tests.services import slurm_site

#: Site to lines that its jobs have, for two ranks on two nodes.
LINES = {
    "alpha": ("#SBATCH --gres=gpu:1", "#SBATCH --mem-per-cpu=20625", "srun python "),
    "capella": ("#SBATCH --cpus-per-task=14", "srun python "),
    "frontier": ("#SBATCH --network=disable_rdzv_get", "srun -c 7 --gpus-per-task=1 "),
    "jupiter": ("#SBATCH --cpus-per-task=72", "#SBATCH --gres=gpu:1", "srun python "),
    "juwels": ("#SBATCH --cpus-per-task=12", "#SBATCH --threads-per-core=1", "srun python "),
    "leonardo": ("#SBATCH --gres=gpu:1", "#SBATCH --mem-per-cpu=15437", "srun python "),
    "local": ("mpirun -np 2 ",),
    "lumi": (
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --mem-per-gpu=60G",
        "srun --cpu-bind=v,mask_cpu=0x00fe000000000000,",
    ),
    "parallelcluster": (
        "#SBATCH -p p4d",
        "#SBATCH --gpus-per-node=1",
        "mpirun -np 2 -N 1 --bind-to none ",
    ),
    "perlmutter": (
        "export SRUN_CPUS_PER_TASK=32",
        "#SBATCH --gpus-per-node=1",
        "export SLURM_CPU_BIND=cores",
        "srun python ",
    ),
    "perlmutter-2023": ("#SBATCH --gpus-per-node=1", "srun python "),
    "polaris": (
        "#PBS -q debug",
        ":ncpus=8:system=polaris",
        "#PBS -l filesystems=home:eagle",
        "mpiexec -n 2 --ppn 1 --depth=8 --cpu-bind depth ",
        "gpu-rank CUDA_VISIBLE_DEVICES PMI_LOCAL_RANK 3,2,1,0 python ",
    ),
    "stampede2": ("#SBATCH -p flat-quadrant", "mpiexec.hydra -l -ppn 1 -n 2 taskset "),
    "stampede3": ("#SBATCH --nodes=2", "ibrun python "),
    "summit": ("#BSUB -nnodes 2", "#BSUB -q batch", "jsrun -bpacked:7 -g1 -a1 -c7 -r1 python "),
    "taurus-ml": ("#SBATCH --mem-per-cpu=1443", "mpirun -np 2 -bind-to none "),
    "vista": ("#SBATCH -p gh", "#SBATCH --nodes=2", "ibrun python "),
}


@pytest.fixture(scope="module")
def configuration():
    return systems.configuration()


def test_every_site_is_a_system(configuration):
    found = {each["name"]: each for each in configuration["systems"]}
    assert set(found) == set(site.names())
    for name, system in found.items():
        machine = site.load(name)
        partitions = {each["name"]: set(each["features"]) for each in system["partitions"]}
        assert list(partitions) == list(machine.partitions)
        for partition, features in partitions.items():
            assert ("gpu" in features) == bool(machine.partitions[partition].gpus)
            assert ("several-nodes" in features) == (machine.scheduler != "none")
            assert ("rocm" in features) == (name in ("frontier", "lumi"))
    stampede3 = {each["name"]: each["features"] for each in found["stampede3"]["partitions"]}
    assert "cuda" in stampede3["h100"] and "cuda" not in stampede3["spr"]


def test_features_are_those_of_the_spec(configuration):
    found = {each["name"]: set(each["features"]) for each in configuration["environments"]}
    assert set(found) == {environment.DEFAULT, *environment.of_sites()}
    assert {"pytorch", "nccl", "rccl", "rocm", "mpi"} <= found["frontier-hvd"]
    assert "cuda" not in found["frontier-hvd"] and "rccl" not in found["perlmutter-hvd"]
    assert {"tensorflow", "pytorch", "cuda", "nccl"} <= found["perlmutter-hvd"]
    assert {"ddl", "cuda"} <= found["summit-ddl-hvd"] and "nccl" not in found["summit-ddl-hvd"]


def test_reframe_has_a_launcher_for_every_method():
    """By its own name, unless ReFrame has one of that name."""
    names = [systems.launcher(name) for name in site.launchers().methods]
    assert "jsrun" in names
    program = f"""
import sys
from hvd.reframe import settings
from reframe.core.backends import getlauncher
for name in {names}:
    assert issubclass(getlauncher(name), settings.SiteLauncher), name
for name in ("srun", "mpirun", "mpiexec", "ibrun"):
    assert not issubclass(getlauncher(name), settings.SiteLauncher), name
"""
    environ = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)


@pytest.mark.parametrize(
    ("storage", "scheduler"),
    [("accounting_storage/none", "squeue"), ("(null)", "squeue"), ("slurmdbd", "slurm")],
)
def test_a_slurm_without_accounting_is_asked_otherwise(storage, scheduler, monkeypatch):
    text = f"AccountingStorageType   = {storage}"
    monkeypatch.setattr(systems.process, "output", lambda *_: text)
    assert systems.slurm.__wrapped__() == scheduler


def test_bandwidth_is_of_the_operations_and_nodes():
    bounds = (Bandwidth("mpi", 2, 100.0, ()), Bandwidth("mpi", 1, 900.0, ()))
    use = site.Use("p", "cpu", bandwidth=bounds)
    assert use.least_bandwidth("mpi", 2).bus_mb_s == 100.0
    assert use.least_bandwidth("mpi", 1).bus_mb_s == 900.0
    assert use.least_bandwidth("gloo", 2) is None


@pytest.mark.parametrize("name", site.names())
def test_dry_run(name, tmp_path, monkeypatch, capfd):
    """Without a build, and on any machine."""
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    machine = site.load(name)
    chosen = next(iter(machine.environments))
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", chosen, "--dry-run", "--account", "m1234"])
    printed = capfd.readouterr().out
    assert not ended.value.code, printed
    frameworks = environment.load(chosen).frameworks & {"pytorch", "tensorflow"}
    # two ranks do not share the one GPU of a node
    one_gpu = machine.partitions[machine.environments[chosen].partition].gpus == 1
    for framework in frameworks:
        for nodes in (1,) if machine.scheduler == "none" else (1, 2)[one_gpu:]:
            case = f"Allreduce %framework={framework} %operations=mpi %nodes={nodes}"
            assert re.search(rf"OK \] .*{case}", printed), printed
    variants = environment.load(chosen).root.variants
    on_gpus = [each for each in ("nccl", "ddl") if variants.get(each) is True]
    on_gpus += [systems.GPU_MPI] * ("mpi" in variants.get("gpu_ops", ()))
    asked = set(re.findall(r"OK \] .*Allreduce .*%operations=(\S+)", printed))
    assert asked - {"mpi", "gloo", "ccl"} == set(on_gpus)
    scripts = [each.read_text() for each in tmp_path.rglob("rfm_job.sh")]
    assert any("--device=gpu" in text for text in scripts) == bool(on_gpus)
    assert len(scripts) == printed.count("  OK ]")
    for line in LINES[name]:
        assert any(line in text for text in scripts if "--ranks 2" in text), line
    accounts = {"slurm": "#SBATCH -A m1234", "lsf": "#BSUB -P m1234", "pbs": "#PBS -A m1234"}
    account = accounts.get(machine.scheduler)
    assert all(account in text for text in scripts if account)


def test_the_page_describes_a_machine_with_slurm(tmp_path, monkeypatch):
    file = tmp_path / "sites" / "local" / site.SITE
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(slurm_site.described()))
    monkeypatch.setenv("HVD_SITES", str(tmp_path))
    machine = site.load("local")
    assert machine.scheduler == "slurm" and environment.DEFAULT in machine.environments
