"""``./hvd gpu-check``."""

from __future__ import annotations

import pathlib
import sys
from typing import Optional

from packaging.requirements import Requirement

from hvd.build.pipeline import Options
from hvd.cli.common import option, takes
from hvd.core import console, lock, paths, process
from hvd.core.run import Run
from hvd.deliver import bundle as bundles
from hvd.gpu import check
from hvd.host import framework
from hvd.model import recipe
from hvd.model.environment import HOROVOD

#: A distribution that a machine with a framework has.
_THERE = ("numpy",)


@takes("jobs", "python", "fresh", "verbose")
def gpu_check(
    options: Options,
    pack: Optional[pathlib.Path] = option(
        "--pack DIR|FILE.tar|FILE.tar.gz",
        "Pack all of it for a machine without a network; --python is then one of its version.",
        None,
    ),
    report: Optional[pathlib.Path] = option(
        "--report FILE.json", "Output. \\[default: .hvd/reports/gpu-check.json]", None
    ),
    limit: float = option("--limit MINUTES", "Time limit, with the build.", 8.0, min=0.1),
) -> None:
    """Build Horovod for this machine's GPUs, run it on all of them, and write one report.

    It takes the PyTorch, NCCL and nvcc of this machine: --python names the interpreter, python3
    on PATH by default. It compares operations over NCCL, MPI and Gloo with NumPy's, and the
    bandwidth of NCCL in Horovod with that in torch.distributed.
    """
    if pack:
        _pack(options, pack.expanduser())
        return
    file = report or paths.state() / "reports" / f"{check.NAME}.json"
    check.run(options, limit * 60, file.expanduser().absolute())


def _pack(options: Options, destination: pathlib.Path) -> None:
    """Write a bundle whose install.sh runs the check."""
    commit = bundles.commit()
    python = options.python or sys.executable
    needed = [text for text in bundles.portable(()) if Requirement(text).name not in _THERE]
    groups = [(python, bundles.hashed(paths.REQUIREMENTS)), (python, needed)]
    process.adopt_orphans()
    run = Run(check.NAME, "bundle", options.verbose)
    with bundles.gathering(destination.absolute()) as directory:
        with lock.exclusive(paths.state() / "lock"), run.stage("bundle"):
            with run.step("repository") as task:
                bundles.repository(paths.ROOT, directory / "git" / "hvd.git", task)
            with run.step("sources") as task:
                version = next(iter(recipe.load(HOROVOD).versions()))
                bundles.horovod(version, directory / "sources")
                task.say(f"Horovod {version}")
            with run.step("wheels") as task:
                bundles.wheels(groups, directory / "wheels", task)
            with run.step("checksums") as task:
                facts = {
                    "COMMAND": f"{check.NAME} --report ../{check.NAME}.json",
                    "COMMIT": commit,
                    "PYTHON": ".".join(framework.version(python).split(".")[:2]),
                }
                task.say(f"{bundles.SUMS}: sha256 {bundles.seal(directory, facts)}")
    console.note(paths.shorten(destination))
    console.note("on the machine with GPUs: ./install.sh --prefix DIR")
