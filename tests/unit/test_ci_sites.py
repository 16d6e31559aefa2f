"""``./hvd ci sites``: what was checked too long ago, and what a site has taken away."""

from __future__ import annotations

import datetime
import pathlib
import shutil

import pytest
import yaml

from hvd.ci import sites as stale_sites
from hvd.core import paths
from hvd.model import site

LIVE = [
    name for name in site.names() if site.load(name).status.state == "live" and name != site.LOCAL
]
DAY = "2020-01-01"


@pytest.fixture
def alpha(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The file of a site that is alone, live, and was checked on `DAY`."""
    shutil.copytree(paths.ENVIRONMENTS, tmp_path, symlinks=True, dirs_exist_ok=True)
    for each in (tmp_path / "sites").glob("*/site.yaml"):
        if each.parent.name != "alpha":
            each.unlink()
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path)
    file = tmp_path / "sites" / "alpha" / site.SITE
    change(file, checked={"date": DAY, "by": "documents"}, removed=[])
    return file


def change(file: pathlib.Path, **changes: object) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))


def stale(days: int) -> list:
    return stale_sites.stale(datetime.date.fromisoformat(DAY) + datetime.timedelta(days))


def test_a_site_is_old_after_half_a_year(alpha) -> None:
    assert stale(180) == []
    (said,) = stale(181)
    assert said.endswith(
        f"alpha/site.yaml: key 'checked': {DAY}, by documents, is more than 180 days ago"
    )


def test_an_environment_has_an_age_of_its_own(alpha) -> None:
    environments = yaml.safe_load(alpha.read_text())["environments"]
    environments["alpha-hvd"]["checked"] = {"date": "2019-01-01", "by": "machine"}
    change(alpha, environments=environments)
    (said,) = stale(0)
    assert "key 'environments:alpha-hvd:checked': 2019-01-01, by machine" in said


@pytest.mark.parametrize("state", ["live", "waiting", "retired"])
def test_a_module_that_a_live_site_has_taken_away(alpha, state) -> None:
    loads = yaml.safe_load(alpha.read_text())["environments"]["alpha-hvd"]["modules"]["run"]
    modules = [loads[0][0], "other/1"]
    change(
        alpha,
        removed=[{"date": "2020-01-03", "modules": modules, "source": "modules"}],
        status={
            **{"state": state, "source": "modules"},
            **({"waits_for": "x"} if state == "waiting" else {}),
            **({"since": "2020", "successors": []} if state == "retired" else {}),
        },
    )
    assert stale(1) == []
    said = [line.partition(": ")[2] for line in stale(2)]
    gone = f"key 'removed': {modules[0]} is in use, and gone since 2020-01-03"
    assert said == [gone] * (state == "live")
    assert bool(stale(181)) == (state != "retired")


@pytest.mark.parametrize("name", LIVE)
def test_a_live_site_uses_nothing_that_it_had_taken_away_when_it_was_checked(name) -> None:
    machine = site.load(name)
    day = datetime.date.fromisoformat(machine.checked.date)
    shown = paths.shorten(site.file(name))
    assert not [each for each in stale_sites.stale(day) if each.startswith(f"{shown}: key 'rem")]


def test_the_command_names_them_and_fails(alpha, hvd) -> None:
    done = hvd("ci", "sites")
    assert done.status == 1 and "alpha/site.yaml: key 'checked'" in done.out
    change(alpha, checked={"date": datetime.date.today().isoformat(), "by": "documents"})
    assert hvd("ci", "sites").status == 0
