"""``./hvd publish``."""

from __future__ import annotations

import contextlib
import enum
import functools
import pathlib
from typing import List, Optional, Sequence

import rich.text
import typer

from hvd.cli.common import BuiltByOption, EngineName, flag, option
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver.publish import module, plan, store
from hvd.deliver.publish.module import Module
from hvd.deliver.publish.plan import LANGUAGES, Origin, Row
from hvd.model import built, environment, site

_COLOURS = {"new": "green", "replaced": "yellow", "gone": "red"}


class ToolName(str, enum.Enum):
    """Lmod, Environment Modules, or both."""

    lmod = "lmod"
    tcl = "tcl"
    both = "both"


def publish(
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[ENV]...", help="Built environments; see ./hvd list. \\[default: local-hvd]"
    ),
    root: pathlib.Path = option("--root DIR", "Root of the module tree.", ...),
    tool: Optional[ToolName] = option("--tool", "Module tool. \\[default: the site's tool]", None),
    engine: EngineName = BuiltByOption,
    default: bool = flag("--default", "Make it the default version."),
    suffix: str = option("--suffix WORD", "Append this to the module's version."),
    replace: bool = flag("--replace", "Replace a module with the same name."),
    rollback: bool = flag("--rollback", "Go back to the previous publication."),
    dry_run: bool = flag("--dry-run", "Show what would change; write nothing."),
) -> None:
    """Publish built environments as modules for Lmod and Environment Modules.

    For example: ./hvd publish local-hvd --root /sw/modules --tool both
    """
    # absolute: modules name paths below it, and it names the lock
    root = root.expanduser().resolve()
    if rollback:
        if names or suffix or default or replace or tool:
            raise HvdError("--rollback goes back by one publication", "leave the rest out")
        _rollback(root, dry_run)
        return
    wanted = []
    tools: List[str] = []
    # reading all sites takes longer than everything else
    site_of = functools.lru_cache(None)(site.of)
    for name in dict.fromkeys(names or [environment.DEFAULT]):
        chosen = environment.load(name)
        base = environment.base(chosen)
        machine = site_of(base)
        done = built.find_current(name, engine.value)
        made = module.describe(done, machine, machine.environments[base], suffix)
        wanted.append((made, Origin(name, done.engine)))
        tools += [each for each in _tools(machine, tool) if each not in tools]
    with _opened(root, dry_run):
        current = store.read(root)
        tree, rows = plan.make(current.tree, wanted, tools, default, replace)
        _show(rows, dry_run)
        if dry_run:
            return
        if tree.files != current.tree.files:
            console.note(f"published: {store.write(root, current, tree)}")
        else:
            if current.name:
                # an interrupted publication may have left out the links
                store.switch(root, current.name)
            console.note("nothing to do: all of it is published")
    _explain(root, tools, [made for made, _ in wanted])


def _tools(machine: site.Site, tool: Optional[ToolName]) -> Sequence[str]:
    if tool is ToolName.both:
        return tuple(LANGUAGES)
    if tool is None and machine.modules.tool == "none":
        file = paths.shorten(site.file(machine.name))
        raise HvdError(
            f"{file}: key 'modules:tool': {machine.name} has no module tool",
            f"name one: --tool {', '.join(each.value for each in ToolName)}",
        )
    return (tool.value if tool else machine.modules.tool,)


def _rollback(root: pathlib.Path, dry_run: bool) -> None:
    with _opened(root, dry_run):
        current = store.read(root)
        if not current.parent:
            raise HvdError(
                f"{root} has no earlier publication to go back to",
                "see what is there: ./hvd publish --dry-run" if current.name else "publish first",
            )
        before = store.load(root, current.parent)
        _show(plan.changed(current.tree, before.tree), dry_run)
        if not dry_run:
            store.switch(root, before.name)
            console.note(f"published again: {before.name}")


def _opened(root: pathlib.Path, dry_run: bool) -> contextlib.AbstractContextManager:
    """The lock of ``root``; none for a dry run, which creates no file."""
    return store.reported(root) if dry_run else store.locked(root)


def _show(rows: Sequence[Row], dry_run: bool) -> None:
    table = console.table("Would be" if dry_run else "Change", "Module", "From")
    for row in rows:
        change = rich.text.Text(row.change, _COLOURS.get(row.change, ""))
        table.add_row(change, row.path, row.source)
    console.out.print(table)


def _explain(root: pathlib.Path, tools: Sequence[str], modules: Sequence[Module]) -> None:
    """Say how users find the modules."""
    directories = sorted({each.directory for each in modules})
    for tool in tools:
        if directories == [""]:
            use = f"module use {root / tool} && module load {modules[-1].full_name}"
            console.note(f"to use it: {use}")
            continue
        for directory in directories:
            line = module.unlocking(root / tool / directory, tool)
            console.note(f"in the site's module that opens {directory}: {line}")
