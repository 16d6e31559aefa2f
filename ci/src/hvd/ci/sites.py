"""Find what may no longer hold in the sites' files, for a pipeline that runs every night."""

from __future__ import annotations

import datetime
from typing import List

from hvd.core.paths import shorten
from hvd.model import site
from hvd.solve import site_check

#: The days after which facts are compared with their sources again.
DAYS = 180


def stale(today: datetime.date) -> List[str]:
    """Name what was checked too long ago, and what a live site has taken away."""
    found = []
    for name in site.names():
        machine = site.load(name)
        # the pipelines build the environment of this machine
        if name == site.LOCAL or machine.status.state == "retired":
            continue
        # an environment without a date of its own has the site's
        checked = {"checked": machine.checked}
        for environment, use in machine.environments.items():
            if use.checked != machine.checked:
                checked[f"environments:{environment}:checked"] = use.checked
        problems = [
            f"key '{key}': {each.date}, by {each.by}, is more than {DAYS} days ago"
            for key, each in checked.items()
            if (today - datetime.date.fromisoformat(each.date)).days > DAYS
        ]
        # where a site waits, its page says already that modules are gone
        if machine.status.state == "live":
            problems += [
                f"key 'removed': {module} is in use, and gone since {each.date}"
                for each in machine.removed
                if datetime.date.fromisoformat(each.date) <= today
                for module in each.modules
                if module in site_check.modules(machine)
            ]
        found += [f"{shorten(site.file(name))}: {problem}" for problem in problems]
    return found
