"""Find what may no longer hold in the sites' files, for a pipeline that runs every night."""

from __future__ import annotations

import datetime
from typing import List

from hvd.core.paths import shorten
from hvd.model import site
from hvd.model.site import Checked, Site
from hvd.solve import site_check

#: The days after which facts are compared with their sources again.
DAYS = 180


def stale(today: datetime.date) -> List[str]:
    """Name what was checked too long ago, and what a live site has taken away."""
    # the pipelines build the environment of this machine
    machines = [site.load(name) for name in site.names() if name != site.LOCAL]
    return [
        f"{shorten(site.file(machine.name))}: {problem}"
        for machine in machines
        if machine.status.state != "retired"
        for problem in (*_old(machine, today), *_gone(machine, today))
    ]


def _old(machine: Site, today: datetime.date) -> List[str]:
    checked = {"checked": machine.checked}
    for name, use in machine.environments.items():
        # an environment without a date of its own has the site's
        if use.checked != machine.checked:
            checked[f"environments:{name}:checked"] = use.checked
    return [
        f"key '{key}': {each.date}, by {each.by}, is more than {DAYS} days ago"
        for key, each in checked.items()
        if _age(each, today) > DAYS
    ]


def _gone(machine: Site, today: datetime.date) -> List[str]:
    """Where a site waits, its page says already that they are gone."""
    if machine.status.state != "live":
        return []
    used = site_check.modules(machine)
    return [
        f"key 'removed': {module} is in use, and gone since {each.date}"
        for each in machine.removed
        if datetime.date.fromisoformat(each.date) <= today
        for module in each.modules
        if module in used
    ]


def _age(checked: Checked, today: datetime.date) -> int:
    return (today - datetime.date.fromisoformat(checked.date)).days
