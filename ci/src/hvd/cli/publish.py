"""``./hvd publish``."""

from __future__ import annotations

import enum
import functools
import pathlib
from typing import Callable, List, Optional, Sequence, Tuple

import rich.table
import typer

from hvd.build.engine_pip import PipEngine
from hvd.build.engine_spack import SpackEngine
from hvd.cli.common import BuiltByOption, EngineName
from hvd.core import console, paths
from hvd.core.errors import HvdError
from hvd.deliver.publish import describe, plan, store
from hvd.deliver.publish.module import Module
from hvd.deliver.publish.plan import Row, Source
from hvd.model import built, environment, site

_ENGINES = {"spack": SpackEngine, "pip": PipEngine}
_COLOURS = {"new": "green", "back": "green", "replaced": "yellow", "gone": "red", "default": ""}


class ToolName(str, enum.Enum):
    """The module tools to publish for: Lmod, Environment Modules, or both."""

    lmod = "lmod"
    tcl = "tcl"
    both = "both"


def publish(
    names: Optional[List[str]] = typer.Argument(
        None, metavar="[ENV]...", help="Built environments; see ./hvd list.  [default: local-hvd]"
    ),
    root: pathlib.Path = typer.Option(
        ..., "--root", metavar="DIR", help="Root of the module tree."
    ),
    tool: Optional[ToolName] = typer.Option(
        None, "--tool", help="What for.  [default: the site's tool]", show_default=False
    ),
    engine: EngineName = BuiltByOption,
    default: bool = typer.Option(False, "--default", help="Make it the default version."),
    suffix: str = typer.Option(
        "",
        "--suffix",
        metavar="WORD",
        help="Append this to the module's version.",
        show_default=False,
    ),
    replace: bool = typer.Option(False, "--replace", help="Replace a module with the same name."),
    rollback: bool = typer.Option(
        False, "--rollback", help="Go back to the previous publication."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Show what would change; write nothing."
    ),
) -> None:
    """Publish built environments as modules for Lmod and Environment Modules.

    For example: ./hvd publish local-hvd --root /sw/modules --tool both
    """
    # modules name paths below it, and it is a lock's name
    root = pathlib.Path(root.expanduser().resolve())
    if rollback:
        if names or suffix or default or replace or tool:
            raise HvdError("--rollback goes back by one publication", "leave the rest out")
        _rollback(root, dry_run)
        return
    wanted = []
    tools: List[str] = []
    # reading all sites takes longer than the rest
    site_of = functools.lru_cache(None)(site.of)
    for name in dict.fromkeys(names or [environment.DEFAULT]):
        module, source, chosen = _describe(name, engine.value, tool, suffix, site_of)
        wanted.append((module, source))
        tools += [each for each in chosen if each not in tools]
    with store.reported(root) if dry_run else store.locked(root):
        current = store.read(root)
        tree, rows = plan.make(current.tree, wanted, tools, default, replace)
        _show(rows, dry_run)
        if dry_run:
            return
        if tree.files == current.tree.files:
            # the links, where a kill came between the two
            if current.name:
                store.switch(root, current.name)
            console.note("nothing to do: all of it is published")
        else:
            console.note(f"published: {store.write(root, current, tree)}")
    _explain(root, tools, [module for module, _ in wanted])


def _describe(
    name: str,
    engine: str,
    tool: Optional[ToolName],
    suffix: str,
    site_of: Callable[[str], site.Site],
) -> Tuple[Module, Source, Sequence[str]]:
    """The module of the environment called ``name``, and the tools that it is for."""
    chosen = environment.load(name)
    base = environment.base(chosen)
    machine = site_of(base)
    done = built.find(name, engine)
    built.check(done, _ENGINES[done.engine].digest(chosen))
    module = describe.describe(done, machine, machine.environments[base], suffix)
    return module, Source(name, done.engine), _tools(machine, tool)


def _tools(machine: site.Site, tool: Optional[ToolName]) -> Sequence[str]:
    if tool is ToolName.both:
        return store.TOOLS
    if tool is None and machine.modules.tool == "none":
        file = paths.shorten(site.file(machine.name))
        raise HvdError(
            f"{file}: key 'modules:tool': {machine.name} has no module tool",
            f"say which to publish for: --tool {', '.join(each.value for each in ToolName)}",
        )
    return (tool.value if tool else machine.modules.tool,)


def _rollback(root: pathlib.Path, dry_run: bool) -> None:
    with store.reported(root) if dry_run else store.locked(root):
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


def _show(rows: Sequence[Row], dry_run: bool) -> None:
    """The table of what changes."""
    table = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for title in ("Would be" if dry_run else "Change", "Module", "From"):
        table.add_column(title, overflow="fold")
    for row in rows:
        colour = _COLOURS.get(row.change)
        table.add_row(f"[{colour}]{row.change}[/]" if colour else row.change, row.path, row.source)
    console.out.print(table)


def _explain(root: pathlib.Path, tools: Sequence[str], modules: Sequence[Module]) -> None:
    """How users come to the modules."""
    for tool in tools:
        tree = root / tool
        directories = sorted({module.directory for module in modules})
        if directories == [""]:
            console.note(f"to use it: module use {tree} && module load {modules[-1].full_name}")
            continue
        for directory in directories:
            line = describe.unlocking(tree / directory, tool)
            console.note(f"in the site's module that opens {directory}: {line}")
