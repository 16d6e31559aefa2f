"""The tree of module files that a publication makes, and how it differs from the one before."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Callable, Collection, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from hvd.core.errors import HvdError
from hvd.deliver import template
from hvd.deliver.publish.module import Module


class Language(NamedTuple):
    """The language of a tool's module files."""

    suffix: str  #: of module files
    default: str  #: name of the file that chooses the default version
    quote: Callable[[str], str]  #: writes a string literal


def _lua(text: str) -> str:
    # JSON has Lua's escapes, but for those of control characters, which are refused
    return json.dumps(text, ensure_ascii=False)


def _tcl(text: str) -> str:
    """A word in which Tcl substitutes nothing.

    In ASCII: Lmod and Environment Modules decode other bytes differently.
    """
    escaped = re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n")
    return '"' + re.sub(r"[^\x00-\x7f]", lambda each: f"\\u{ord(each[0]):04x}", escaped) + '"'


#: By tool: Lmod, Environment Modules.
LANGUAGES: Dict[str, Language] = {
    "lmod": Language(".lua", ".modulerc.lua", _lua),
    "tcl": Language("", ".version", _tcl),
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """The origin of a module: an environment, and the engine that built it."""

    environment: str
    engine: str

    def __str__(self) -> str:
        return f"{self.environment} ({self.engine})"


@dataclasses.dataclass(frozen=True)
class Tree:
    """Everything published below a root; paths begin with the tool's name."""

    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    sources: Mapping[str, Origin] = dataclasses.field(default_factory=dict)  #: of each module
    #: path of the default version, by the directory of all versions
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """One difference between two trees: ``new``, ``same``, ``replaced``, ``gone``, ``default``."""

    change: str
    path: str
    source: str


def make(
    current: Tree,
    wanted: Sequence[Tuple[Module, Origin]],
    tools: Sequence[str],
    default: bool = False,
    replace: bool = False,
) -> Tuple[Tree, List[Row]]:
    """Add the modules ``wanted`` to ``current``, for each of ``tools``.

    Args:
        default: make the last of them the default version.
        replace: replace modules with the same name and another content.

    Returns:
        The new tree, and how it differs.

    Raises:
        HvdError: two modules have the same name and different content.
    """
    files: Dict[str, bytes] = dict(current.files)
    sources: Dict[str, Origin] = dict(current.sources)
    defaults: Dict[str, str] = dict(current.defaults)
    added = set()
    for tool in tools:
        for module, source in wanted:
            path, content = _file(module, tool)
            if files.get(path, content) != content and (path in added or not replace):
                or_else = "" if path in added else ", or --replace"
                raise HvdError(
                    f"{module.full_name} of {source} has the name of another module, of"
                    f" {sources[path]}",
                    f"give it a name of its own: --suffix WORD{or_else}",
                )
            files[path] = content
            sources[path] = source
            added.add(path)
            group = path.rpartition("/")[0]
            if group not in defaults or (default and module is wanted[-1][0]):
                defaults[group] = path
                files.update([_default(path)])
    tree = Tree(files, sources, defaults)
    return tree, changed(current, tree, added)


def changed(before: Tree, after: Tree, shown: Collection[str] = ()) -> List[Row]:
    """The differences between two trees; for ``shown`` paths also that there is none."""
    sources = {**before.sources, **after.sources}
    rows = []
    for path in sorted(sources):
        if path not in after.files:
            change = "gone"
        elif path not in before.files:
            change = "new"
        else:
            change = "same" if before.files[path] == after.files[path] else "replaced"
        if change != "same" or path in shown:
            rows.append(Row(change, path, str(sources[path])))
    for group, path in sorted(after.defaults.items()):
        if before.defaults.get(group) != path:
            rows.append(Row("default", path, str(sources[path])))
    return rows


def _file(module: Module, tool: str) -> Tuple[str, bytes]:
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


def _default(path: str) -> Tuple[str, bytes]:
    """Path and content of the file that makes the module at ``path`` the default version."""
    tool, *_, name, file = path.split("/")
    version = file[: len(file) - len(LANGUAGES[tool].suffix)]
    content = _render("default", tool, name=name, version=version)
    return f"{path.rpartition('/')[0]}/{LANGUAGES[tool].default}", content


def _render(kind: str, tool: str, **values: object) -> bytes:
    file = f"deliver/templates/{kind}.{tool}.j2"
    return template.render(file, LANGUAGES[tool].quote, **values).encode()
