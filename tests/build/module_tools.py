"""Lmod and Environment Modules from Debian's packages, unpacked aside: they exclude each other."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
from typing import Dict

from hvd.core import paths
from hvd.core.files import kept
from tests import debian, needs

#: The packages of each tool: itself and what runs it.
_TCL = ("tcl8.6", "libtcl8.6")
_LUA = ("lua5.3", "lua-filesystem", "lua-json", "lua-lpeg", "lua-posix", "lua-term")
PACKAGES = {
    "lmod": ("lmod", *_LUA, *_TCL),
    "tcl": ("environment-modules", *_TCL),
}
#: Starts the ``module`` command in bash.
_INITS = {"lmod": "usr/share/lmod/lmod/init/bash", "tcl": "usr/share/modules/init/bash"}
#: What the packages' files say of each other's places.
_PLACES = (
    "/usr/share/lmod", "/usr/lib/lmod", "/usr/share/lua", "/usr/share/modules",
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/bin/lua5.3",
    "/usr/bin/tclsh8.6", "/etc/lmod", "/etc/environment-modules",
)  # fmt: skip
#: Tcl's program and library where they were unpacked; no variable of the loader's reaches what
#: Tcl starts, as that one is to see the user's.
_TCLSH = """\
#!/bin/sh
TCL_LIBRARY={root}/usr/share/tcltk/tcl8.6 exec {loader} --library-path {libraries} \\
    {root}/usr/bin/tclsh8.6.real "$@"
"""
#: A tool's own records of what is loaded; nothing of the user's.
RECORDS = re.compile(
    "LOADEDMODULES|_LMFILES_|_ModuleTable|__LMOD_|LMOD_|__MODULES_|MODULEPATH$|MODULES_"
)


@dataclasses.dataclass(frozen=True)
class ModuleTool:
    """A real module tool: ``lmod`` or ``tcl``."""

    name: str
    root: pathlib.Path

    @property
    def init(self) -> str:
        """The line of bash that defines the ``module`` command."""
        init = f". {shlex.quote(str(self.root / _INITS[self.name]))}"
        if self.name != "lmod":
            return init
        # it looks for Tcl's library and program where they need not be installed
        # https://lmod.readthedocs.io/en/latest/090_configuring_lmod.html
        tclsh = shlex.quote(str(self.root / "usr/bin/tclsh8.6"))
        return f"export LMOD_FAST_TCL_INTERP=no LMOD_TCLSH={tclsh}; {init}"

    def shell(self, program: str, **variables: str) -> subprocess.CompletedProcess:
        """Run lines of bash in a shell that knows the ``module`` command and little else.

        Standard output and standard error are captured, apart.
        """
        clean = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        clean.update(TERM="dumb", LMOD_PAGER="", MODULES_PAGER="")
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", f"{self.init}\n{program}\n"],
            env={**clean, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def program(self, name: str) -> pathlib.Path:
        """A program that comes with the tool."""
        return next(self.root.glob(f"usr/share/lmod/*/libexec/{name}"))


def install(name: str) -> ModuleTool:
    """Return a module tool; skips where its packages cannot be fetched."""
    root = paths.cache() / "module-tools" / name

    def fill(directory: pathlib.Path) -> None:
        debian.extract(PACKAGES[name], directory)
        _relocate(directory, root)

    with needs.provided():
        return ModuleTool(name, kept(root, fill))


def _relocate(root: pathlib.Path, final: pathlib.Path) -> None:
    """Let the files below ``root`` look for each other below ``final``."""
    for file in root.rglob("*"):
        if file.is_symlink() or not file.is_file():
            continue
        text = file.read_bytes()
        if b"\0" in text:
            continue
        for place in _PLACES:
            text = text.replace(place.encode(), f"{final}{place}".encode())
        file.write_bytes(text)
    for link in root.rglob("*"):
        target = os.readlink(link) if link.is_symlink() else ""
        if target.startswith("/usr") and (root / target[1:]).exists():
            link.unlink()
            link.symlink_to(f"{final}{target}")
    program = root / "usr/bin/tclsh8.6"
    program.rename(program.with_name("tclsh8.6.real"))
    library = next(root.glob("usr/lib/*/libtcl8.6.so*"))
    libraries = final / library.parent.relative_to(root)
    program.write_text(_TCLSH.format(root=final, loader=debian.loader(), libraries=libraries))
    program.chmod(0o755)


def environment(done: subprocess.CompletedProcess, mark: str) -> Dict[str, str]:
    """The variables that ``echo MARK; env -0; echo`` printed, without the shell's own."""
    blob = done.stdout.partition(f"{mark}\n")[2].partition("\n\0end\n")[0]
    pairs = [entry for entry in blob.split("\0") if "=" in entry]
    found = dict(entry.split("=", 1) for entry in pairs)
    return {k: v for k, v in found.items() if k not in ("_", "SHLVL", "PWD", "OLDPWD")}


def show(mark: str) -> str:
    """A line of shell that prints the environment for :func:`environment`."""
    return f"echo {mark}; env -0; printf '\\n\\0end\\n'"


def users(variables: Dict[str, str]) -> Dict[str, str]:
    """``variables`` without the module tool's own."""
    return {name: value for name, value in variables.items() if not RECORDS.match(name)}
