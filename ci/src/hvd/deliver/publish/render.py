"""Module files: Lua for Lmod, Tcl for Environment Modules."""

from __future__ import annotations

import json
import re
from typing import Callable, Dict, NamedTuple, Tuple

from hvd.core.errors import HvdError
from hvd.deliver import template
from hvd.deliver.publish.describe import Module


class Language(NamedTuple):
    """The language of a tool's module files.

    Args:
        suffix: of module files.
        default: name of the file that chooses the default version.
        quote: writes a string literal.
    """

    suffix: str
    default: str
    quote: Callable[[str], str]


def _lua(text: str) -> str:
    # JSON has Lua's escapes, but for those of control characters, which are refused
    return json.dumps(text, ensure_ascii=False)


def _tcl(text: str) -> str:
    """A word in which Tcl substitutes nothing.

    In ASCII: Lmod and Environment Modules decode other bytes differently.
    """
    escaped = re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n")
    return '"' + re.sub(r"[^\x00-\x7f]", lambda each: f"\\u{ord(each[0]):04x}", escaped) + '"'


#: By tool.
LANGUAGES: Dict[str, Language] = {
    "lmod": Language(".lua", ".modulerc.lua", _lua),
    "tcl": Language("", ".version", _tcl),
}


def module(module: Module, tool: str) -> Tuple[str, bytes]:
    """Path below the root, and content, of the file of ``module`` for ``tool``.

    Raises:
        HvdError: a value contains a character that no module file can hold.
    """
    for change in module.changes:
        if re.search(r"[\x00-\x08\x0b-\x1f]", change.value):
            raise HvdError(
                f"the value of {change.name} has a control character",
                "fix what sets it: site.yaml, or a package of the environment",
            )
    path = "/".join(filter(None, [tool, module.directory, module.full_name]))
    return path + LANGUAGES[tool].suffix, _render("module", tool, module=module)


def default(path: str) -> Tuple[str, bytes]:
    """Path and content of the file that makes the module at ``path`` the default version."""
    tool = path.partition("/")[0]
    group, _, file = path.rpartition("/")
    name = group.rpartition("/")[2]
    version = file[: len(file) - len(LANGUAGES[tool].suffix)]
    content = _render("default", tool, name=name, version=version)
    return f"{group}/{LANGUAGES[tool].default}", content


def _render(kind: str, tool: str, **values: object) -> bytes:
    file = f"deliver/publish/templates/{kind}.{tool}.j2"
    return template.render(file, LANGUAGES[tool].quote, **values).encode()
