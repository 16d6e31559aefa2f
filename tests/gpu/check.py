#!/usr/bin/env python3
"""Build Horovod for this machine's GPUs, run and train on all of them, and write one report.

python3 tests/gpu/check.py --python python3.12                  # the Python with PyTorch
python3 tests/gpu/check.py --python python3.12 --pack kit.tar   # to run without a network
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import types
from typing import Iterator, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
if pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
    # any command of ./hvd makes it
    if subprocess.call([sys.executable, ROOT / "hvd", "list"], stdout=subprocess.DEVNULL):
        sys.exit("error: ./hvd cannot be set up")
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
sys.path[:0] = [str(ROOT / "ci" / "src"), str(ROOT)]

from benchmarks import collectives  # noqa: E402
from hvd.core import console, lock, paths, process, stamp  # noqa: E402
from hvd.core.errors import HvdError  # noqa: E402
from hvd.core.files import write_atomically  # noqa: E402
from hvd.core.run import Run, StageFailed  # noqa: E402
from hvd.engines import pipeline  # noqa: E402
from hvd.engines.engine_pip import PipEngine  # noqa: E402
from hvd.fetch import clone, source  # noqa: E402
from hvd.host import framework, machine  # noqa: E402
from hvd.model import built, environment, recipe  # noqa: E402
from hvd.model.versions import pinned  # noqa: E402
from hvd.report.text import duration, size  # noqa: E402
from hvd.smoke.launch import Target, launchers  # noqa: E402
from hvd.smoke.run import check_build_items, run_launcher  # noqa: E402
from tests.training import jobs  # noqa: E402
from tests.training.compared import compare  # noqa: E402

LAUNCH = 90.0  #: seconds that one launch may take


def build(run: Run, found: dict, python: str) -> built.Built:
    """Build Horovod for the GPUs, or for H100 and H200 where there is none."""
    with run.stage("setup"):
        with run.step("GPUs") as task:
            words = ("--query-gpu=name,compute_cap", "--format=csv,noheader")
            gpus = found["gpus"] = process.output("nvidia-smi", *words).splitlines()
            task.say("; ".join(gpus) or "none; compiling for those of compute capability 9.0")
        with run.step("MPI, CMake and Python packages") as task:
            python, added = framework.beside(python, paths.state() / "gpu-check", task.log)
            task.say(", ".join(added) or "all there")
        capabilities = {each.rpartition(", ")[2].replace(".", "") for each in gpus}
        spec = "py-horovod +mpi+gloo+nccl+cuda~rocm frameworks:=pytorch cuda_arch="
        spec += ",".join(sorted(capabilities)) or "90"
        chosen = environment.derive(environment.load(environment.DEFAULT), spec)
        engine = PipEngine(chosen, python, machine.cores())
        known = engine.setup(run)
    with run.stage("concretize"):
        solution = engine.concretize(run, known)
        found["versions"] = solution.versions()
    with run.stage("build"):
        solution.build(run)
        with run.step("activation") as task:
            done, _ = solution.record(task)
            built.save(done)
    return done


def check(run: Run, found: dict, done: built.Built) -> None:
    """Run operations, measurements and training on the GPUs: all of it, whatever fails."""
    count = len(found["gpus"])
    if not count:
        raise HvdError(
            "no GPU, so nothing was run: nvidia-smi lists none",
            "run this in a job that asks for a GPU, or in a container with --nv or --gpus all",
        )
    variables = done.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    out = run.logs / "smoke" / "ranks"
    stamp.clear(out)
    plan = [("check-build", functools.partial(check_build_items, target, done.expectation, out))]
    ours = [each for each in launchers(done.expectation, done.case) if each.device == "gpu"]
    # a rank on each GPU; two that share one, as a single rank exchanges nothing
    for ranks in (count,) if count > 1 else (1, 2):
        for launcher in ours:
            name = f"{launcher.name}, ranks: {ranks}"
            options = {"name": name, "ranks": ranks, "timeout": LAUNCH}
            plan.append((name, functools.partial(run_launcher, launcher, target, out, **options)))
    failures = pipeline.perform(run, plan, found["checks"])
    for measure in (train, measure_times):
        try:
            failures += measure(run, found, target, count, ours)
        except (HvdError, AssertionError) as error:
            failures.append(f"{measure.__name__}: {error}")
    if failures:
        raise HvdError("\n  ".join(failures), "the report has the end of each log")


def measure_times(run, found, target, count, ours) -> List[str]:
    """Time Horovod, waiting as released too, and torch.distributed, with a rank on each GPU."""
    # torch.distributed learns the rank from horovodrun
    (launcher,) = (each for each in ours if each.controller == "gloo")
    parts, limits = ("allreduce", "collectives", "training"), {"seconds": 0.05, "timeout": LAUNCH}
    rounds = {"horovod": [], "released": [], "peer": []}
    for number, (method, calls) in itertools.product((1, 2), rounds.items()):
        with run.step(f"times of {method}, {number}") as task:
            words = (launcher, target, method, parts, count, task.log)
            calls.append(collectives.launch(*words, **limits))
    for method, calls in rounds.items():
        found["bandwidth"] += collectives.rows({"method": method, "ranks": count}, calls)
    return []


def train(run, found, target, count, ours) -> List[str]:
    """Train scripts on two ranks and in one process; return where the weights differ after it."""
    subject, cuda = types.SimpleNamespace(target=target), {"TRAINING_DEVICE": "cuda"}
    new = functools.partial(tempfile.mkdtemp, dir=run.logs)
    folders, failures = types.SimpleNamespace(mktemp=lambda name: pathlib.Path(new(name))), []
    with jobs.one_processes(subject, folders, "worlds.OneProcess", **cuda) as one:
        for launcher, asynchronous in itertools.product(("mpirun", "horovodrun --gloo"), "01"):
            settings = {**cuda, "HOROVOD_ENABLE_ASYNC_COMPLETION": asynchronous}
            title = f"training, {launcher}, asynchronous completion: {asynchronous}"
            wrong = found["training"][title] = {}
            with run.step(title) as task:
                with jobs.ranks_of(subject, folders, launcher, 2, **settings) as ranks:
                    for case in one(2).values("cases_gpu.names")[0]:
                        try:
                            wrong[case] = compare(ranks, one(2), "cases_gpu", case)
                        except AssertionError as error:
                            wrong[case] = str(error)[-2000:]
                bad = [case for case in wrong if wrong[case]]
                task.say(f"{len(wrong)} cases right")
                if bad:
                    task.failed(f"wrong: {', '.join(bad)}")
                    failures.append(f"{title}: {', '.join(bad)}")
    return failures


def text(run: Run, found: dict) -> Iterator[str]:
    """Yield the report's lines for people."""
    failed = [stage.name for stage in run.stages if stage.status == "failed"]
    yield f"{run.started}  {'FAILED: ' + ', '.join(failed) if failed else 'passed'}"
    yield "versions: " + ", ".join(map(" ".join, found["versions"].items()))
    for stage in run.stages:
        for step in stage.steps:
            line = f"{stage.name}: {step.name}: {step.status}, {duration(step.seconds)}"
            yield f"{line}  {step.detail[:120]}".rstrip()
    for each in (check for check in found["checks"] if check["operations"]):
        right = sum(all(row["ok"].values()) for row in each["operations"])
        yield f"{each['name']}: {right} of {len(each['operations'])} results right"
    for row in found["bandwidth"]:
        rate = f"  bus: {row.get('bus', 0) / 1e9:.2f} GB/s"
        what = f"{row['operation']}, {row['dtype']}, {row['method']}"
        yield f"{size(row['bytes']):>8}  {row['median'] * 1e6:10.1f} us{rate}  {what}"
    if not found["training"]:
        yield "training: NOT RUN"


def write_report(run: Run, found: dict, file: pathlib.Path) -> None:
    """Write all that was found, and the end of the log of what failed."""
    steps = [step for stage in run.stages for step in stage.steps]
    logs = {step.name: step.log for step in steps if step.status == "failed"}
    logs.update({each["name"]: each["log"] for each in found["checks"] if each["failures"]})
    report = {
        "text": list(text(run, found)),
        **found,
        "stages": [dataclasses.asdict(stage) for stage in run.stages],
        "host": machine.describe(),
        "commit": clone.commit(ROOT),
        "logs": {name: process.tail(pathlib.Path(log), 200) for name, log in logs.items() if log},
    }
    write_atomically(file, json.dumps(report, indent=1, default=os.fspath).encode())
    console.note(paths.shorten(file))


def pack(archive: pathlib.Path, python: str) -> None:
    """Pack this commit, Horovod's source, and wheels for ``python``."""
    if subprocess.check_output(["git", "-C", ROOT, "status", "--porcelain"]):
        sys.exit("error: files differ from the commit; commit them first")
    hashed = ["--require-hashes", "-r", paths.REQUIREMENTS]
    needed = [pinned().framework.cmake, *framework.requirements((), None)]
    # that one comes with PyTorch
    needed = [each for each in dict.fromkeys(needed) if not each.startswith("numpy")]
    horovod = recipe.load("py-horovod")
    sdist = source.sdist(horovod, next(iter(horovod.versions())))
    with tempfile.TemporaryDirectory() as scratch:
        kit = pathlib.Path(scratch, "kit")
        subprocess.check_call(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), kit / "hvd"])
        subprocess.check_call(["git", "-C", kit / "hvd", "remote", "remove", "origin"])
        for words in (hashed, needed):
            command = [python, "-m", "pip", "download", "--quiet", "--dest", kit / "wheels"]
            subprocess.check_call([*command, *words], env=process.clean_environment())
        place = kit / "cache" / sdist.relative_to(paths.cache().parent)
        place.parent.mkdir(parents=True)
        shutil.copy(sdist, place)
        shutil.copy(pathlib.Path(__file__).with_name("kit.sh"), kit / "check")
        (kit / "version").write_text(".".join(framework.version(python).split(".")[:2]))
        with tarfile.open(archive, "w") as tar:
            tar.add(kit, "kit")
    console.note(f"on the machine with GPUs: tar xf {archive.name} && kit/check --python PYTHON")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default="python3", help="the one with PyTorch for CUDA")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE.tar", help="make a kit")
    parser.add_argument("--limit", type=float, default=12, help="minutes, with the build")
    parser.add_argument("--report", type=pathlib.Path, default=paths.state() / "gpu-check.json")
    args = parser.parse_args()
    python = shutil.which(args.python) or parser.error(f"{args.python} is not on PATH")
    process.adopt_orphans()
    if args.pack:
        return pack(args.pack, python)
    run, status = Run("gpu-check", "pip"), 1
    found = {"gpus": [], "versions": {}, "checks": [], "bandwidth": [], "training": {}}
    # as Ctrl-C: it ends what runs, and leaves a report
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, args.limit * 60)
    try:
        with lock.exclusive(paths.state() / "lock"):
            done = build(run, found, python)
            with run.stage("smoke"):
                check(run, found, done)
        status = 0
    except StageFailed as failure:
        status = failure.status
    except KeyboardInterrupt:
        console.error(HvdError("interrupted, or not over in time", "--limit MINUTES gives more"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_report(run, found, args.report)
    sys.exit(status)


if __name__ == "__main__":
    main()
