"""``./hvd check``."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Sequence

import typer

from hvd.cli.common import BuiltByOption, EngineName, flag, option
from hvd.core import console, lock, paths
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.launch import request
from hvd.launch.start import callers
from hvd.model import built, site
from hvd.reframe import systems

_HERE = pathlib.Path(systems.__file__).parent


def check(
    context: typer.Context,
    name: str = typer.Argument(..., metavar="ENV", help="Environment; see environments/sites."),
    engine: EngineName = BuiltByOption,
    partition: str = option("--partition NAME", "Another of the site's partitions."),
    account: str = option("--account NAME", "Account to charge."),
    quick: bool = flag("--quick", "Fewer and smaller sizes."),
    dry_run: bool = flag("--dry-run", "Write job scripts but submit none; works on any machine."),
) -> None:
    """Check a built environment on its site's nodes, in jobs, with ReFrame.

    Checks what was built, then runs two ranks on one node and on two, for each framework and
    operation.
    Further arguments go to ReFrame: ./hvd check ENV -- --list
    """
    machine = site.of(name)
    kind = request.make(name, partition=partition).partition
    action = ["--dry-run" if dry_run else "--run", "--performance-report", *context.args]
    if {"-l", "-L", "--list", "--list-detailed", "--describe"} & set(context.args):
        action = context.args
    if "--run" in action:
        subject = built.find(name, engine.value)
        activation.write(activation.plan(subject), subject.directory)
        _say_what_is_not_judged(machine, name, quick)
    system = f"{machine.name}:{kind.name}"
    reframe = pathlib.Path(sys.executable).with_name("reframe")
    if not reframe.is_file():
        raise HvdError(f"there is no {reframe}", "start this as ./hvd check, which installs it")
    words = [sys.executable, reframe, "-C", _HERE / "settings.py", "-c", _HERE / "checks.py"]
    words += ["--system", system, "-p", f"^{name}$", "--prefix", systems.prefix()]
    words += ["-S", f"engine={engine.value}"] + ["-S", "Allreduce.quick=true"] * quick
    option = site.launchers().schedulers[machine.scheduler].account
    words += [f"--job-option={option} {account}"] if account and option else []
    words += ["--nocolor"] * (not sys.stdout.isatty())
    with lock.exclusive(systems.prefix() / "lock", "checks in this checkout"):
        report = systems.prefix() / systems.REPORT
        report.unlink(missing_ok=True)
        status = _run([*words, *action])
        if not status and action != context.args and not report.exists():
            raise HvdError(
                "no check was run", f"see which there are: ./hvd check {name} -- --list"
            )
    raise typer.Exit(1 if status else 0)


def _run(words: Sequence[object]) -> int:
    """ReFrame's exit status."""
    sys.stdout.flush()
    command = [str(word) for word in words]
    process = subprocess.Popen(command, cwd=systems.prefix(), env=callers(os.environ))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # ReFrame gets the signal, too, and cancels its jobs
            continue


def _say_what_is_not_judged(machine: site.Site, name: str, quick: bool) -> None:
    if quick:
        console.aside("--quick: bandwidths are measured and not judged")
        return
    use = machine.environments[name]
    missing = [
        f"{operations} on {nodes} node{'s' * (nodes > 1)}"
        for operations, nodes in systems.cases(machine, name)
        if use.least_bandwidth(operations, nodes) is None
    ]
    if missing:
        file = paths.shorten(site.file(machine.name))
        console.aside(f"{file} has no bandwidth of {name} for {', '.join(missing)}:")
        console.aside("it is measured there, and not judged")
