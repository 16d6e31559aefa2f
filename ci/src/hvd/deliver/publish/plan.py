"""The tree that a publication makes, and how it differs from the one before."""

from __future__ import annotations

import dataclasses
from typing import Collection, Dict, List, Mapping, Sequence, Tuple

from hvd.core.errors import HvdError
from hvd.deliver.publish import render
from hvd.deliver.publish.describe import Module


@dataclasses.dataclass(frozen=True)
class Origin:
    """The origin of a module: an environment, and the engine that built it."""

    environment: str
    engine: str

    def __str__(self) -> str:
        return f"{self.environment} ({self.engine})"


@dataclasses.dataclass(frozen=True)
class Tree:
    """Everything published below a root.

    Args:
        files: content by path; paths begin with the tool's name.
        sources: the origin of each module's file.
        defaults: path of the default version, by the directory of all versions.
    """

    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    sources: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
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
            path, content = render.module(module, tool)
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
                files.update([render.default(path)])
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
