"""``./hvd check``."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import typer

from hvd.cli.common import BuiltByOption, EngineName, SiteArgument, flag, option
from hvd.core import lock
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.launch import request
from hvd.launch.start import callers
from hvd.model import built
from hvd.reframe import systems

_HERE = pathlib.Path(systems.__file__).parent


def check(
    context: typer.Context,
    name: str = SiteArgument,
    engine: EngineName = BuiltByOption,
    partition: str = option("--partition NAME", "Another of the site's partitions."),
    account: str = option("--account NAME", "Account to charge."),
    quick: bool = flag("--quick", "Fewer and smaller sizes; bandwidths are not judged."),
    dry_run: bool = flag("--dry-run", "Write job scripts but submit none; works on any machine."),
) -> None:
    """Check a built environment on its site's nodes, in jobs, with ReFrame.

    Checks what was built, then runs two ranks on one node and on two, for each framework and
    operation.
    Further arguments go to ReFrame: ./hvd check ENV -- --list
    """
    asked = request.make(name, partition=partition)
    action = ["--dry-run" if dry_run else "--run", "--performance-report", *context.args]
    if {"-l", "-L", "--list", "--list-detailed", "--describe"} & set(context.args):
        action = context.args
    if "--run" in action:
        subject = built.find(name, engine.value)
        activation.write(activation.plan(subject), subject.directory)
    reframe = pathlib.Path(sys.executable).with_name("reframe")
    if not reframe.is_file():
        raise HvdError(f"there is no {reframe}", "start this as ./hvd check, which installs it")
    words = [sys.executable, reframe, "-C", _HERE / "settings.py", "-c", _HERE / "checks.py"]
    words += ["--system", f"{asked.site.name}:{asked.partition.name}", "-p", f"^{name}$"]
    words += ["--prefix", systems.prefix(), "-S", f"engine={engine.value}"]
    words += ["-S", "Allreduce.quick=true"] * quick + ["--nocolor"] * (not sys.stdout.isatty())
    if account and asked.scheduler.account:
        words.append(f"--job-option={asked.scheduler.account} {account}")
    with lock.exclusive(systems.prefix() / "lock", "checks in this checkout"):
        report = systems.prefix() / systems.REPORT
        report.unlink(missing_ok=True)
        sys.stdout.flush()
        process = subprocess.Popen(
            [*map(str, words), *action], cwd=systems.prefix(), env=callers(os.environ)
        )
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                continue  # ReFrame gets the signal, too, and cancels its jobs
        if not process.returncode and action != context.args and not report.exists():
            hint = f"see which there are: ./hvd check {name} -- --list"
            raise HvdError("no check was run", hint)
    raise typer.Exit(1 if process.returncode else 0)
