"""A Spack to work with, apart from the user's own Spack and its configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import yaml

from hvd.core import paths, process
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.process import Completed
from hvd.fetch import mirror
from hvd.fetch.mirror import Source
from hvd.host import machine, mpi
from hvd.model.versions import Pair
from hvd.solve import queries, repo_index

#: The compilers that are looked for.
_COMPILERS = ("gcc", "llvm")
#: Arguments that make a solve take nothing from Spack's own cache of solutions.
UNCACHED = ("-c", "concretizer:concretization_cache:enable:false")
#: The build tools that are looked for.
_TOOLS = ("cmake", "gmake")
_SOLVE_TIMEOUT = 3600
#: Where a checkout of Spack's packages has them.
BUILTIN = pathlib.Path("repos", "spack_repo", "builtin")
#: Variables of the caller that a captured activation may see.
_HARMLESS = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER")
#: Variables that would let the user's own Spack in.
_FOREIGN = ("SPACK_ENV", "SPACK_ENV_VIEW", "SPACK_ROOT", "SPACK_DISABLE_LOCAL_CONFIG")
#: The module tools' records of what is loaded.  Spack 1.2 loads the modules of externals, and
#: takes one that is loaded already for one that cannot be: https://github.com/spack/spack/pull/52752
_LOADED = re.compile(r"LOADEDMODULES|_LMFILES_|_ModuleTable")


@dataclasses.dataclass(frozen=True)
class Spack:
    """One Spack with its builtin packages, isolated below ``<checkout>/.hvd/<pair>``."""

    root: pathlib.Path
    packages: pathlib.Path
    pair: Pair
    addresses: Dict[str, str]

    @property
    def state(self) -> pathlib.Path:
        return paths.state() / self.pair.name

    @property
    def scope(self) -> pathlib.Path:
        """The configuration scope that takes the place of ``~/.spack``."""
        return self.state / "config"

    @property
    def stages(self) -> pathlib.Path:
        """Where Spack unpacks sources and builds."""
        return self.state / "stage"

    @property
    def mirror(self) -> pathlib.Path:
        return paths.cache() / "sources"

    def variables(self) -> Dict[str, str]:
        """The variables that keep this Spack apart from any other on the machine."""
        # an environment of HVD_SITES includes its site by that variable
        sites = {k: os.environ[k] for k in (paths.SITES_VARIABLE,) if k in os.environ}
        return {
            **sites,
            "SPACK_PYTHON": str(interpreter()),
            "SPACK_USER_CONFIG_PATH": str(self.scope),
            "SPACK_USER_CACHE_PATH": str(self.state / "user"),
            # a directory that does not exist: no /etc/spack either
            "SPACK_SYSTEM_CONFIG_PATH": str(self.state / "system"),
            paths.KEYRING_VARIABLE: str(paths.keyring()),
        }

    def environment(self) -> Dict[str, str]:
        """The whole environment to run this Spack in."""
        base = {k: v for k, v in os.environ.items() if k not in _FOREIGN and not _LOADED.match(k)}
        return {**base, **self.variables()}

    def run(
        self,
        *arguments: object,
        log: pathlib.Path,
        variables: Optional[Mapping[str, str]] = None,
        **keywords,
    ) -> Completed:
        """Run ``spack`` with ``arguments``; see :func:`hvd.core.process.run`.

        Args:
            variables: set on top of :meth:`environment`.
        """
        command = [self.root / "bin" / "spack", "--color=never", *arguments]
        environment = {**self.environment(), **(variables or {})}
        return process.run(command, log=log, env=environment, **keywords)

    def configure(self, jobs: int) -> None:
        """Write the configuration scope and the script that users source."""
        builtin = self.packages / BUILTIN
        cache = paths.cache()
        files = {
            "config": {
                "environments_root": str(paths.ENVIRONMENTS),
                "install_tree": {"root": str(self.state / "opt")},
                "build_stage": [str(self.stages)],
                "test_stage": str(self.state / "test"),
                "source_cache": str(cache / "downloads"),
                "misc_cache": str(repo_index.directory(self.pair.name)),
                "build_jobs": jobs,
                # only for users who have set a directory for it
                "ccache": bool(os.environ.get("CCACHE_DIR") and shutil.which("ccache")),
            },
            "concretizer": {
                # leave out of a solve what packages.yaml rules out
                "static_analysis": True,
                # the details of an emulated processor are not known
                "targets": {"host_compatible": not machine.foreign()},
            },
            # the first one wins
            "repos": {"hvd": str(paths.REPOSITORY), "builtin": str(builtin)},
            "mirrors": {
                "hvd-sources": {"url": self.mirror.as_uri(), "source": True, "binary": False}
            },
            # clingo comes with ./hvd.  Spack takes gpg and patchelf from PATH only if it may
            # bootstrap; without sources it downloads nothing
            "bootstrap": {"root": str(self.state / "bootstrap"), "sources:": [], "trusted:": {}},
        }
        self.scope.mkdir(parents=True, exist_ok=True)
        self.mirror.mkdir(parents=True, exist_ok=True)
        for section, content in files.items():
            text = yaml.safe_dump({section: content}, sort_keys=False)
            write_atomically(self.scope / f"{section}.yaml", text.encode())
        write_atomically(paths.state() / "setup-env.sh", self._setup_script().encode())

    def find_tools(self, log: pathlib.Path, first: List[pathlib.Path]) -> None:
        """Let Spack find the compilers and build tools of this machine."""
        scope = self.scope / "packages.yaml"
        scope.unlink(missing_ok=True)
        # elsewhere are those of several emulated processors
        places = ["/usr/local"] if machine.foreign() else []
        self.run("compiler", "find", "--scope=user", *places, log=log, timeout=300)
        find = ["external", "find", "--scope=user"]
        for directory in mpi.search_path(first).split(os.pathsep):
            if os.path.isdir(directory):
                find += ["--path", directory]
        self.run(*find, *_TOOLS, log=log, timeout=300)
        found = yaml.safe_load(scope.read_text())["packages"] if scope.exists() else {}
        if not has_compiler(found, "cxx"):
            raise HvdError("no C++ compiler is on PATH", "install one: g++ or clang++", log)
        # sorted: Spack finds in any order, and the same findings must make the same file
        write_atomically(scope, yaml.safe_dump({"packages": found}).encode())
        # for solves that must not build a compiler or a tool to build something with it
        names = [*found, "c", "cxx", "fortran"]
        self._write_not_buildable(self._tools, names)

    def ask(
        self,
        environment: pathlib.Path,
        query: pathlib.Path,
        log: pathlib.Path,
        *words: str,
        options: Sequence[object] = (),
    ) -> Any:
        """Return the JSON of a program of ``solve/queries``, run by Spack in ``environment``.

        Args:
            query: the program.
            words: its arguments.
            options: of ``spack`` itself.
        """
        command = [self.root / "bin" / "spack", "--color=never"]
        command += [*options, "-e", environment, "python", query, *words]
        # what the caller's modules have set would be missing from the changes that a query finds
        known = {name: os.environ[name] for name in _HARMLESS if name in os.environ}
        base = {**known, "PATH": os.defpath, **self.variables()}
        output = process.run(command, log=log, env=base, timeout=600).output
        # what Spack itself has to say stands before it
        return json.loads(output.splitlines()[-1])

    def fetch_sources(
        self,
        environment: pathlib.Path,
        log: pathlib.Path,
        say: Callable[[str], None],
        *words: str,
    ) -> List[Source]:
        """Fetch the sources that the solved ``environment`` is built from into the mirror.

        Args:
            say: called with what is being done.
            words: ``all`` for those of what is installed as well.

        Returns:
            The sources of all that is to be built.
        """
        wanted = [Source(**each) for each in self.ask(environment, queries.SOURCES, log, *words)]
        count = mirror.fill(
            wanted,
            self.mirror,
            self.addresses,
            log,
            lambda each: say(f"{each.name}@{each.version}"),
        )
        say(f"{count} fetched, {len(wanted)} to build")
        return wanted

    def concretize(
        self, environment: pathlib.Path, log: pathlib.Path, local: bool, fresh: bool = False
    ) -> None:
        """Solve ``environment`` again, without what ``solve/queries/prune.py`` rules out.

        Args:
            local: with this machine's compilers and build tools, and none built; a site's
                environment names its own.
            fresh: take nothing from Spack's own cache of solutions.
        """
        scope = ("-C", self._tools) if local else ()
        known = self.ask(environment, queries.PRUNE, log, options=scope)
        pruned = self.state / environment.name / "prune"
        self._write_not_buildable(pruned, known["unneeded"])
        options = [*(UNCACHED if fresh else ()), "-C", pruned, *scope, "-e", environment]
        if not known["compilers_here"]:
            # Spack solves with the compilers of what is installed as well, and with their C
            # library, which is not that of another machine
            # https://github.com/spack/spack/blob/v1.1.0/lib/spack/spack/solver/asp.py#L3529
            options += ["-c", f"config:install_tree:root:{self.state / 'elsewhere'}"]
        self.run(*options, "concretize", "--force", log=log, timeout=_SOLVE_TIMEOUT)

    def activation(self, environment: pathlib.Path, log: pathlib.Path) -> Dict[str, str]:
        """The variables that activating ``environment`` sets, with their values.

        The shell that is asked sees only a few of the caller's variables: what it says goes into
        logs and files, and others may hold secrets.
        """
        base = {name: os.environ[name] for name in _HARMLESS if name in os.environ}
        base.update(self.variables())
        setup = shlex.quote(str(self.root / "share" / "spack" / "setup-env.sh"))
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        show = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        activate = f"spack env activate {shlex.quote(str(environment))}"
        shell = f". {setup} && {activate} && {show}"
        done = process.run(["bash", "-c", shell], log=log, env=base, timeout=300)
        after = json.loads(done.output.splitlines()[-1])
        return {name: value for name, value in after.items() if base.get(name) != value}

    @property
    def _tools(self) -> pathlib.Path:
        return self.state / "tools"

    @staticmethod
    def _write_not_buildable(scope: pathlib.Path, names: List[str]) -> None:
        content = {"packages": {name: {"buildable": False} for name in names}}
        write_atomically(scope / "packages.yaml", yaml.safe_dump(content).encode())

    def _setup_script(self) -> str:
        lines = ["# Made by ./hvd setup.  Source it: spack env activate then knows our names."]
        lines += [f"unset {' '.join(_FOREIGN)}"]
        # Spack's script finds it itself, but in a batch job that QEMU emulates
        variables = {"SPACK_ROOT": str(self.root), **self.variables()}
        lines += [f"export {k}={shlex.quote(v)}" for k, v in variables.items()]
        script = self.root / "share" / "spack" / "setup-env.sh"
        return "\n".join([*lines, f". {shlex.quote(str(script))}", ""])


def has_compiler(packages: Mapping[str, dict], language: str) -> bool:
    """Say whether an external in ``packages``, a section of that name, compiles ``language``."""
    return any(
        language in external.get("extra_attributes", {}).get("compilers", {})
        for name in _COMPILERS
        for external in packages.get(name, {}).get("externals", [])
    )


def interpreter() -> pathlib.Path:
    """The Python that runs Spack: that of ``./hvd``, or one that is emulated where builds are.

    Spack takes the processor of its own Python for the machine's.
    """
    emulated = paths.state() / "spack-python" / "bin" / "python"
    return emulated if machine.foreign() else pathlib.Path(sys.executable)
