"""The commands of ``./hvd``."""

from __future__ import annotations

import signal
import sys
from typing import List, Optional

import typer

from hvd.ci import reproduce
from hvd.cli import (
    bench,
    bundle,
    cache,
    canary,
    check,
    ci,
    container,
    debian,
    deliver,
    diff,
    docs,
    doctor,
    environments,
    gpu_check,
    launch,
    matrix,
    pipeline,
    rehearse,
    release,
    site,
    testing,
    timeline,
    upstream,
    versions,
)
from hvd.core import console
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS, StageFailed

#: The exit status for wrong usage and for errors outside a stage, as in most tools.
USAGE = 2
#: The exit status after Ctrl-C, as a shell has it.
INTERRUPTED = 130

app = typer.Typer(
    name="./hvd",
    help="Horovod on supercomputers: set up, concretize, build and test an environment.\n\n"
    "[bold]./hvd run[/bold] does all of it for this machine.",
    epilog="Exit status: 0 passed, 2 wrong usage, "
    + ", ".join(f"{status} {stage} failed" for stage, status in EXIT_STATUS.items())
    + ".",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: For commands that hand arguments on.
_MORE = {"allow_extra_args": True}

app.command(name="run")(pipeline.run)
app.command(name="setup")(pipeline.setup)
app.command(name="build")(pipeline.build)
app.command(name="smoke")(pipeline.smoke)
app.command(name="concretize")(pipeline.concretize)
app.command(name="lock")(pipeline.lock)
app.command(name="docs")(docs.docs)
app.command(name="list")(environments.list_environments)
app.command(name="activate")(deliver.activate)
app.command(name="bench")(bench.bench)
app.command(name="bundle")(bundle.bundle)
app.add_typer(cache.app, name="cache")
app.command(name="canary")(canary.canary)
app.command(name="check", context_settings=_MORE)(check.check)
app.add_typer(ci.app, name="ci")
app.command(name="container")(container.container)
app.command(name="debian", context_settings=_MORE)(debian.enter)
app.command(name="diff")(diff.diff)
app.command(name="doctor")(doctor.doctor)
app.command(name="gpu-check")(gpu_check.gpu_check)
app.command(name="kernel")(deliver.kernel)
app.command(name="launch")(launch.launch)
app.command(name="matrix")(matrix.matrix)
app.command(name="publish")(deliver.publish)
app.command(name="rehearse")(rehearse.rehearse)
app.command(name="release")(release.release)
app.add_typer(site.app, name="site")
app.command(name="timeline")(timeline.timeline)
app.command(name="upstream")(upstream.upstream)
app.command(name="versions")(versions.versions)
app.command(name="wheel")(deliver.wheel)
app.command(name="externals")(environments.write_externals)
app.command(name="test", context_settings={**_MORE, "ignore_unknown_options": True})(testing.test)


def main(arguments: Optional[List[str]] = None) -> None:
    """Run a command; end the process with its status, and in a job say how to repeat it."""
    status = _run(arguments)
    if status not in (0, INTERRUPTED):
        for line in reproduce.lines(sys.argv[1:] if arguments is None else arguments):
            console.aside(line)
    sys.exit(status)


def _run(arguments: Optional[List[str]]) -> int:
    """Call a command; two more signals end it as Ctrl-C does, with its children and a report."""
    ended: List[int] = []

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        ended.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup has the second one ignored
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    status = _call(arguments)
    return 128 + ended[0] if ended else status


def _call(arguments: Optional[List[str]]) -> int:
    try:
        app(args=arguments, prog_name="./hvd")
    except StageFailed as failure:
        return failure.status
    except HvdError as error:
        console.error(error)
        return USAGE
    except KeyboardInterrupt:
        console.err.print("interrupted")
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
