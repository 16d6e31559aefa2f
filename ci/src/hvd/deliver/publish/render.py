"""Write a module in Lua for Lmod, and in Tcl for Environment Modules."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Callable, Dict

import jinja2

from hvd.core.errors import HvdError
from hvd.deliver.publish.module import Module

_TEMPLATES = pathlib.Path(__file__).with_name("templates")


@dataclasses.dataclass(frozen=True)
class Language:
    """What a tool's module files are written in.

    Args:
        suffix: of the files' names.
        default: name of the file that says which version is loaded where none is named.
    """

    suffix: str
    default: str
    template: str
    default_template: str
    quote: Callable[[str], str]


def _lua(text: str) -> str:
    """``text`` as a string of Lua."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _tcl(text: str) -> str:
    """``text`` as a word of Tcl in which nothing is substituted.

    In ASCII: Lmod and Environment Modules take other bytes of a file for different characters.
    """
    escaped = re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n")
    return '"' + re.sub(r"[^\x00-\x7f]", lambda each: f"\\u{ord(each[0]):04x}", escaped) + '"'


#: By the name of the tool.
LANGUAGES: Dict[str, Language] = {
    "lmod": Language(".lua", ".modulerc.lua", "module.lua.j2", "default.lua.j2", _lua),
    "tcl": Language("", ".version", "module.tcl.j2", "default.tcl.j2", _tcl),
}


def file(module: Module, tool: str) -> str:
    """Where ``module`` is below the tree of ``tool``."""
    return module.path + LANGUAGES[tool].suffix


def default_file(file: str, tool: str) -> str:
    """Where it says which of the modules beside ``file`` is the default."""
    return f"{file.rpartition('/')[0]}/{LANGUAGES[tool].default}"


def module(module: Module, tool: str) -> bytes:
    """The module as a file of ``tool``; the same bytes for the same module.

    Raises:
        HvdError: a value has a character that no module file can hold.
    """
    for change in module.changes:
        if re.search(r"[\x00-\x08\x0b-\x1f]", change.value):
            raise HvdError(
                f"the value of {change.name} has a control character",
                "mend what sets it: site.yaml, or a package of the environment",
            )
    return _render(LANGUAGES[tool].template, tool, module=module)


def default(file: str, tool: str) -> bytes:
    """The file that makes the module at ``file`` the default among those beside it."""
    name, version = file[: len(file) - len(LANGUAGES[tool].suffix)].split("/")[-2:]
    return _render(LANGUAGES[tool].default_template, tool, name=name, version=version)


def _render(template: str, tool: str, **values: object) -> bytes:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = LANGUAGES[tool].quote
    return environment.get_template(template).render(**values).encode()
