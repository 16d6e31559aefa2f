"""What a publication would change, and what stands in its way; nothing is written here."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, Sequence, Tuple

from hvd.core.errors import HvdError
from hvd.deliver.publish import render
from hvd.deliver.publish.module import Module


@dataclasses.dataclass(frozen=True)
class Source:
    """What a published file comes from: an environment, and the engine that built it."""

    environment: str
    engine: str

    def __str__(self) -> str:
        return f"{self.environment} ({self.engine})"


@dataclasses.dataclass(frozen=True)
class Tree:
    """All that is published below a root: the same for every tool, but for the language.

    Args:
        files: contents by path, which begins with the tool's name.
        sources: what each module's file comes from.
        defaults: for each directory with modules of one name, the path of the default.
    """

    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    sources: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of what changes: ``new``, ``same``, ``replaced``, ``default``, ``back``, ``gone``."""

    change: str
    path: str
    source: str


def make(
    current: Tree,
    wanted: Sequence[Tuple[Module, Source]],
    tools: Sequence[str],
    default: bool = False,
    replace: bool = False,
) -> Tuple[Tree, List[Row]]:
    """``current`` with the modules ``wanted`` in it, for each of ``tools``.

    Args:
        default: make the last of them the default of its name.
        replace: put them in place of those of the same name with another content.

    Returns:
        The tree, and what is new in it.

    Raises:
        HvdError: two modules have one name and not the same content.
    """
    files: Dict[str, bytes] = dict(current.files)
    sources: Dict[str, Source] = dict(current.sources)
    defaults: Dict[str, str] = dict(current.defaults)
    rows: List[Row] = []
    mine: Dict[str, Source] = {}
    for tool in tools:
        for module, source in wanted:
            path = f"{tool}/{render.file(module, tool)}"
            content = render.module(module, tool)
            change = "new" if path not in files else "same"
            if files.get(path, content) != content:
                if path in mine:
                    raise _clash(module, source, mine[path], "")
                if not replace:
                    raise _clash(module, source, sources[path], ", or --replace")
                change = "replaced"
            if path not in mine:
                rows.append(Row(change, path, str(source)))
            files[path], sources[path], mine[path] = content, source, source
            group = path.rpartition("/")[0]
            if group not in defaults or default and (module, source) == wanted[-1]:
                if defaults.get(group) != path:
                    rows.append(Row("default", path, str(source)))
                defaults[group] = path
                files[f"{tool}/{render.default_file(render.file(module, tool), tool)}"] = (
                    render.default(path, tool)
                )
    return Tree(files, sources, defaults), rows


def changed(before: Tree, after: Tree) -> List[Row]:
    """What going from one tree back to another does."""
    rows: List[Row] = []

    def add(change: str, path: str) -> None:
        rows.append(Row(change, path, str(after.sources.get(path) or before.sources[path])))

    for path in sorted({*before.sources, *after.sources}):
        if path not in after.files:
            add("gone", path)
        elif path not in before.files:
            add("back", path)
        elif before.files[path] != after.files[path]:
            add("replaced", path)
    for group in sorted({*before.defaults, *after.defaults}):
        if group in after.defaults and before.defaults.get(group) != after.defaults[group]:
            add("default", after.defaults[group])
    return rows


def _clash(module: Module, source: Source, other: Source, or_else: str) -> HvdError:
    return HvdError(
        f"{module.full_name} of {source} has the name of another module, of {other}",
        f"give it a name of its own: --suffix WORD{or_else}",
    )
