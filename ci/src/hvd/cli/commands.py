"""The table of commands, and the help text that needs no package but Python's own.

``./hvd --help`` prints it before there is a ``.venv``.
"""

from typing import Dict, NamedTuple


class Command(NamedTuple):
    """Where a command is defined, as ``module:attribute`` below ``hvd.cli``, and its summary."""

    place: str
    summary: str
    #: What follows the options is for another program.
    passes_on: bool = False


PANELS: Dict[str, Dict[str, Command]] = {
    "Build and run": {
        "run": Command("pipeline:run", "Set up, concretize, build, smoke-test and report."),
        "setup": Command("pipeline:setup", "Set up Spack (or pip) for this machine."),
        "concretize": Command("pipeline:concretize", "Set up and concretize."),
        "build": Command("pipeline:build", "Set up, concretize and build."),
        "smoke": Command("pipeline:smoke", "Build, and run Horovod on two ranks."),
        "list": Command("environments:list_environments", "List the environments."),
        "spec": Command("environments:check_spec", "Say whether the recipe accepts a spec."),
        "test": Command("testing:test", "Run the tests that this machine can run.", True),
        "clean": Command("clean:clean", "Remove what runs left, and say how much."),
    },
    "Jobs": {
        "launch": Command("launch:launch", "Print or run the command that starts many ranks."),
        "check": Command("check:check", "Check a build on its site's nodes with ReFrame.", True),
        "activate": Command("deliver:activate", "Write a script to use a build without Spack."),
        "kernel": Command("deliver:kernel", "Install a Jupyter kernel for a build."),
        "doctor": Command("doctor:doctor", "Diagnose a build, this shell and this machine."),
    },
    "Share": {
        "publish": Command("deliver:publish", "Publish a build as a module."),
        "cache": Command("cache:app", "Push to a signed binary cache, and install from one."),
        "bundle": Command("bundle:bundle", "Pack an environment for a machine without a network."),
        "container": Command("container:container", "Write a container image definition."),
        "wheel": Command("deliver:wheel", "Pack a build's Horovod as a wheel."),
    },
    "Sites": {
        "externals": Command("externals:write_externals", "Write a Python's externals."),
        "site": Command("site:app", "Describe a new machine."),
        "dev": Command("dev:app", "What maintainers run: docs, matrix, lock, ci."),
    },
}
COMMANDS = {name: each for panel in PANELS.values() for name, each in panel.items()}

_EPILOGUE = """\
./hvd COMMAND --help describes a command.
Options before the command:
  --quiet               Print errors and results only.
  --version             Print the version.
  --show-completion     Print the shell's completion script; --install-completion installs it.

Exit status: 0 passed, 2 wrong usage, 10 setup failed, 11 concretize failed, 12 build failed,
13 smoke failed, 14 report failed, 15 cache failed, 16 bundle failed.
"""


def overview() -> str:
    """The text of ``./hvd --help``."""
    lines = [
        "Usage: ./hvd [--quiet] COMMAND [OPTIONS] [ARGUMENTS]",
        "",
        "Horovod on supercomputers: set up, concretize, build and test an environment.",
        "./hvd run does all of it for this machine.",
    ]
    for panel, commands in PANELS.items():
        lines += ["", f"{panel}:"]
        lines += [f"  {name:<12}{command.summary}" for name, command in commands.items()]
    return "\n".join([*lines, "", _EPILOGUE])
