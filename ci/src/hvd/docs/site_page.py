"""The README's table of environments and the pages of the sites."""

from __future__ import annotations

import pathlib
from typing import List, Mapping, Sequence

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.docs.pages import BEGIN, END, rewrite
from hvd.host.externals import FRAMEWORKS
from hvd.launch import batch, request
from hvd.model import environment, site
from hvd.model.environment import Environment
from hvd.model.site import Site
from hvd.report import templates
from hvd.solve import kept, site_check

README = paths.ROOT / "README.md"
PAGES = paths.ROOT / "docs" / "sites"
_MPIS = ("cray-mpich", "spectrum-mpi", "openmpi", "mpich", "intel-mpi", "intel-oneapi-mpi")


def write(check: bool) -> List[pathlib.Path]:
    """Write the README's table and the sites' pages; with ``check``, refuse stale ones."""
    written = rewrite(README, BEGIN, environments(), check)
    for name in site.names():
        # this machine has no page
        if name != site.LOCAL:
            written += rewrite(PAGES / f"{name}.md", BEGIN, page(site.load(name)), check)
    return written


def environments() -> str:
    """Return the README's table of environments, and the names of those that are retired."""
    return templates.render(
        "docs/environments.md.j2",
        environments=[environment.load(name) for name in environment.names()],
        retired=lambda each: site.of(each.name).status.state == "retired",
        site_of=site.of,
        versions=_versions,
        mpis=_MPIS,
        frameworks=tuple(FRAMEWORKS),
    )


def _versions(chosen: Environment, names: Sequence[str]) -> str:
    """Return the versions of the packages ``names`` that the kept solution has."""
    found = {package.name: package.version for package in kept.load(chosen).packages}
    return ", ".join(
        f"{FRAMEWORKS.get(name, name)} {found[name]}" for name in names if name in found
    )


def page(machine: Site) -> str:
    """Return the generated part of a site's page."""

    def account(name: str) -> str:
        rule = machine.partitions[machine.environments[name].partition].account
        return f"ACCOUNT{rule.suffix}" if rule.needed else ""

    def allocation(name: str) -> str:
        options = {"account": account(name), "time": "0:10:00"}
        return batch.allocation(request.make(name, nodes=2, ranks_per_node=1, **options))

    made = {
        package
        for use in machine.environments.values()
        if use.make
        for package in use.make.packages
    }
    externals = [
        (package, *each)
        for package, entries in site_check.externals(site_check.file(machine.name)).items()
        for each in entries
    ]
    return templates.render(
        "docs/site.md.j2",
        site=machine,
        scheduler=site.launchers().schedulers[machine.scheduler],
        provided=[each for each in externals if each[0] not in made],
        made=[each for each in externals if each[0] in made],
        account=account,
        environment=environment.load,
        root=lambda chosen: next(s for s in chosen.specs if s.startswith(environment.HOROVOD)),
        allocation=allocation,
    )


def bring_up_to_date(
    stale: Mapping[pathlib.Path, bytes], check: bool, source: str, command: str
) -> List[pathlib.Path]:
    """Write files that are out of date, or with ``check`` refuse them."""
    if stale and check:
        shown = ", ".join(paths.shorten(path) for path in stale)
        raise HvdError(f"not what {source}: {shown}", command)
    for path, content in stale.items():
        write_atomically(path, content)
    return list(stale)


def put(path: pathlib.Path, made: str, begin: str = BEGIN) -> str:
    """Return the content of the file ``path`` with ``made`` between ``begin`` and `END`."""
    text = path.read_text() if path.exists() else ""
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        hint = f"add the two lines '{begin}' and '{END}' to it"
        raise HvdError(f"{paths.shorten(path)}: markers not found", hint)
    return f"{before}{begin}\n{made}{END}{after}"
