"""./hvd site on a real Slurm and a real Lmod: a site from nothing, and changes planted in it."""

from __future__ import annotations

import datetime

import pytest
import yaml

from hvd.survey.check import GONE, MOVED, SAME, UNKNOWN
from tests.conftest import chosen_pairs, locate_spack
from tests.services.moon import made

#: The program of a job.
PROGRAM = "import os, sys; print(os.environ['SLURM_PROCID'], os.path.basename(sys.prefix))"


@pytest.fixture(scope="module")
def moon(tmp_path_factory, request):
    scratch = tmp_path_factory.mktemp("moon")
    locate_spack(chosen_pairs(request.config)[0], scratch / "log")
    with made(scratch) as site:
        yield site


def test_the_files_say_what_the_machine_has(moon) -> None:
    directory = moon.checkout.root / "environments" / "sites" / "moon"
    found = yaml.safe_load((directory / "site.yaml").read_text())
    assert found["scheduler"] == "slurm" and found["modules"]["tool"] == "lmod"
    assert found["allowed"]["srun"]["options"] == ["--mpi=pmix"]
    asked = {"partition": "compute", "mem_per_cpu_mb": 500}
    assert found["partitions"]["compute"]["slurm"] == asked
    use = found["environments"]["moon-hvd"]
    assert use["modules"]["run"] == [["openmpi/4.1.8", "torch/2.13.0"]]
    packages = yaml.safe_load((directory / "packages.yaml").read_text())["packages"]
    (openmpi,) = packages["openmpi"]["externals"]
    assert openmpi["prefix"] == str(moon.top / "openmpi")
    assert openmpi["modules"] == ["openmpi/4.1.8"]
    assert packages["python"]["externals"][0]["modules"] == ["torch/2.13.0"]
    assert "modules" not in packages["py-torch"]["externals"][0]
    text = (directory / "sources" / f"{datetime.date.today()}.txt").read_text()
    for command in ("scontrol show config", "srun --mpi=list", "module show openmpi"):
        assert f"$ {command}\n" in text


def test_it_is_solved_and_launched(moon, tmp_path) -> None:
    moon.hvd("concretize", "moon-hvd")
    words = ["launch", "moon-hvd", "--nodes", 2, "--ranks-per-node", 1, "--batch"]
    words += ["--time", "0:01:00", "--output", tmp_path / "output"]
    output = moon.hvd(*words, "--", "python", "-c", PROGRAM)
    text = output[output.index("#!") :].partition("\n  to submit it")[0]
    (tmp_path / "job.sh").write_text(f"{text}\n")
    number = moon.slurm.run("sbatch", "--parsable", tmp_path / "job.sh", **moon.shell).strip()
    ended = moon.slurm.ended(number, 60)
    printed = (tmp_path / "output").read_text()
    assert ended["JobState"] == "COMPLETED", printed
    assert sorted(printed.splitlines()) == ["0 torch", "1 torch"]


def test_planted_changes(moon) -> None:
    """None before; each is found, and nothing else; then all is as it was."""
    states = {fact: state for fact, (state, _) in moon.check(0).items()}
    assert set(states.values()) <= {SAME, UNKNOWN}
    known = ("scheduler", "partition compute", "partition compute: memory_gb", "srun --mpi")
    known += ("module load", "external py-torch", "external gcc")
    assert {states[fact] for fact in known} == {SAME}

    apps, modules = moon.top, moon.top / "modules"
    (apps / "torch").rename(apps / "torch-2")
    moon.module("torch/2.13.0", "torch-2")
    found = moon.check(1)
    state, rest = found["external py-torch"]
    assert state == GONE and str(apps / "torch") in rest
    assert found["external openmpi"][0] == states["external openmpi"]
    (apps / "torch-2").rename(apps / "torch")
    moon.module("torch/2.13.0", "torch")

    (modules / "openmpi" / "4.1.8.lua").rename(apps / "kept")
    found = moon.check(1)
    assert found["module load"][0] == GONE and "openmpi/4.1.8" in found["module load"][1]
    assert found["external openmpi"][0] == GONE and found["external py-torch"][0] == SAME
    (apps / "kept").rename(modules / "openmpi" / "4.1.8.lua")

    moon.slurm.reconfigure({"PartitionName=compute": "PartitionName=lunar"})
    moon.slurm.run("scontrol", "reconfigure")
    state, rest = moon.check(1)["partition compute"]
    assert state == GONE and "lunar" in rest
    moon.slurm.reconfigure({"PartitionName=lunar": "PartitionName=compute"})

    moon.slurm.reconfigure({"RealMemory=1000": "RealMemory=4000"})
    moon.slurm.run("scontrol", "reconfigure")
    found = moon.check(1)
    assert found["partition compute"][0] == SAME
    assert found["partition compute: memory_gb"][0] == MOVED
