"""The README's table of environments and the pages of the sites."""

from __future__ import annotations

import json
import pathlib
from typing import List, Sequence

from hvd.core import paths
from hvd.docs.pages import BEGIN, rewrite
from hvd.host.externals import FRAMEWORKS
from hvd.host.mpi import KINDS
from hvd.launch import batch, request
from hvd.model import environment, site
from hvd.model.environment import Environment
from hvd.model.site import Site
from hvd.report.text import render
from hvd.solve import kept, site_check

README = paths.ROOT / "README.md"
PAGES = paths.ROOT / "docs" / "sites"


def write(check: bool) -> List[pathlib.Path]:
    """Write the README's table and the sites' pages; with ``check``, refuse stale ones."""
    written = rewrite(README, BEGIN, environments(), check)
    for name in site.names():
        # this machine has no page
        if name != site.LOCAL:
            written += rewrite(PAGES / f"{name}.md", BEGIN, page(site.load(name)), check)
    return written


def environments() -> str:
    """Return the README's table of environments, and the sites that are retired."""
    sites = [site.load(name) for name in site.names()]
    return render(
        "docs/environments.md.j2",
        environments=[environment.load(name) for name in environment.names()],
        retired=[each for each in sites if each.status.state == "retired"],
        site_of=site.of,
        evidence=_evidence,
        run_there=any(
            use.checked.by == "machine"
            for each in sites
            if each.name != site.LOCAL
            for use in each.environments.values()
        ),
        versions=_versions,
        mpis=tuple(KINDS),
        frameworks=tuple(FRAMEWORKS),
    )


def _evidence(name: str) -> str:
    """Return what was shown of an environment, in the words that README explains."""
    by = site.of(name).environments[name].checked.by
    if by != "rehearsal":
        return {"documents": "solved", "machine": "run there"}[by]
    spec = json.loads((environment.load(name).directory / "rehearsal.json").read_text())["spec"]
    return "rehearsed, CUDA compiled" if "+cuda" in spec else "rehearsed"


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
    return render(
        "docs/site.md.j2",
        site=machine,
        scheduler=site.launchers().schedulers[machine.scheduler],
        provided=[each for each in externals if each[0] not in made],
        made=[each for each in externals if each[0] in made],
        commands=" ".join(
            line for use in machine.environments.values() if use.make for line in use.make.commands
        ),
        numbers={name: number for number, name in enumerate(machine.sources, 1)},
        account=account,
        environment=environment.load,
        root=lambda chosen: next(s for s in chosen.specs if s.startswith(environment.HOROVOD)),
        allocation=allocation,
    )
