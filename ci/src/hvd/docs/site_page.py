"""The generated parts of the README and of the sites' pages."""

from __future__ import annotations

import pathlib
from typing import List, Mapping

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.launch import batch, request, schedulers
from hvd.model import environment, site
from hvd.model.environment import Environment
from hvd.model.site import Site
from hvd.report import templates
from hvd.solve import kept, site_check

#: The lines before and after the generated part of a file.
BEGIN = "<!-- made by ./hvd docs -->"
END = "<!-- end -->"
README = paths.ROOT / "README.md"
PAGES = paths.ROOT / "docs" / "sites"

_MPIS = {
    name: name
    for name in ("cray-mpich", "spectrum-mpi", "openmpi", "mpich", "intel-mpi", "intel-oneapi-mpi")
}
_FRAMEWORKS = {"py-torch": "PyTorch", "py-tensorflow": "TensorFlow"}


def write(check: bool) -> List[pathlib.Path]:
    """Write the README and the pages of the sites, or with ``check`` refuse stale ones.

    Returns:
        The files that were written.

    Raises:
        HvdError: with ``check``, a file is out of date; or one has no generated part.
    """
    # this machine has no page
    names = [name for name in site.names() if name != site.LOCAL]
    pages = {PAGES / f"{name}.md": page(site.load(name)) for name in names}
    made = {path: put(path, text) for path, text in {README: environments(), **pages}.items()}
    stale = {path: text.encode() for path, text in made.items() if path.read_text() != text}
    return bring_up_to_date(stale, check, "the environments say", "./hvd docs")


def bring_up_to_date(
    stale: Mapping[pathlib.Path, bytes], check: bool, source: str, command: str
) -> List[pathlib.Path]:
    """Write files that are out of date, or with ``check`` refuse them.

    Args:
        stale: the files and their new content.
        check: write nothing.
        source: what they are made from, and "say" or "says".
        command: the command that writes them.

    Raises:
        HvdError: with ``check``, there is one.
    """
    if stale and check:
        shown = ", ".join(paths.shorten(path) for path in stale)
        raise HvdError(f"not what {source}: {shown}", command)
    for path, content in stale.items():
        write_atomically(path, content)
    return list(stale)


def put(path: pathlib.Path, made: str, begin: str = BEGIN) -> str:
    """Return the content of the file ``path`` with ``made`` between ``begin`` and `END`.

    Raises:
        HvdError: the file has no such lines.
    """
    text = path.read_text() if path.exists() else ""
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise HvdError(
            f"{paths.shorten(path)} has no place for what is made",
            f"add the two lines '{begin}' and '{END}' to it",
        )
    return f"{before}{begin}\n{made}{END}{after}"


def environments() -> str:
    """Return the README's table of environments, and the names of those that are retired."""
    return templates.render(
        "docs/environments.md.j2",
        environments=[environment.load(name) for name in environment.names()],
        retired=lambda each: site.of(each.name).status.state == "retired",
        site_of=site.of,
        versions=_versions,
        mpis=_MPIS,
        frameworks=_FRAMEWORKS,
    )


def _versions(chosen: Environment, titles: Mapping[str, str]) -> str:
    """Return the versions of the packages in ``titles`` that the kept solution has."""
    found = {package.name: package.version for package in kept.load(chosen).packages}
    return ", ".join(f"{titles[name]} {found[name]}" for name in titles if name in found)


def page(machine: Site) -> str:
    """Return the generated part of a site's page."""

    def account(name: str) -> str:
        rule = machine.partitions[machine.environments[name].partition].account
        return f"ACCOUNT{rule.suffix}" if rule.needed else ""

    def allocation(name: str) -> str:
        options = {"account": account(name), "time": "0:10:00"}
        return batch.allocation(request.make(name, nodes=2, ranks_per_node=1, **options))

    externals = [
        (package, *each)
        for package, entries in site_check.externals(site_check.file(machine.name)).items()
        for each in entries
    ]
    makes = [use.make for use in machine.environments.values() if use.make]
    own = {package for make in makes for package in make.packages}
    return templates.render(
        "docs/site.md.j2",
        site=machine,
        scheduler=schedulers.of(machine),
        provided=[each for each in externals if each[0] not in own],
        made=[each for each in externals if each[0] in own],
        account=account,
        environment=environment.load,
        root=lambda chosen: next(s for s in chosen.specs if s.startswith(environment.HOROVOD)),
        allocation=allocation,
    )
