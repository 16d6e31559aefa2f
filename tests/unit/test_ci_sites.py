"""``./hvd dev ci sites``: what was checked too long ago, and what a site has taken away."""

import datetime
import shutil

import pytest
import yaml

from hvd.ci.sites import stale
from hvd.core import paths
from hvd.model import site

DAY = datetime.date(2020, 1, 1)


@pytest.fixture
def change(tmp_path, monkeypatch):
    """A function that changes the file of a site that is alone, live, and was checked on `DAY`."""
    shutil.copytree(paths.ENVIRONMENTS, tmp_path, symlinks=True, dirs_exist_ok=True)
    for each in (tmp_path / "sites").glob("*/site.yaml"):
        if each.parent.name != "alpha":
            each.unlink()
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path)
    file = tmp_path / "sites" / "alpha" / site.SITE

    def change(**changes):
        content = {**yaml.safe_load(file.read_text()), **changes}
        file.write_text(yaml.safe_dump(content))
        return content

    change(checked={"date": str(DAY), "by": "documents"}, removed=[])
    return change


def after(days):
    """What is stale so many days later: the key, and the day that the message names."""
    return [line.split("'")[1] for line in stale(DAY + datetime.timedelta(days))]


def test_a_site_and_each_environment_are_old_after_half_a_year(change, hvd):
    assert after(180) == []
    assert after(181) == ["checked"]
    environments = change()["environments"]
    environments["alpha-hvd"]["checked"] = {"date": "2019-01-01", "by": "machine"}
    change(environments=environments)
    assert after(0) == ["environments:alpha-hvd:checked"]
    done = hvd("dev", "ci", "sites")
    assert done.status == 1 and "alpha/site.yaml: key 'checked': 2020-01-01" in done.out


@pytest.mark.parametrize("state", ["live", "waiting", "retired"])
def test_a_module_that_a_site_has_taken_away(change, state):
    status = {"state": state, "source": "modules"}
    status.update({"waiting": {"waits_for": "x"}, "live": {}}.get(state, {}))
    status.update({"since": "2020", "successors": []} if state == "retired" else {})
    module = change()["environments"]["alpha-hvd"]["modules"]["run"][0][0]
    gone = {"date": "2020-01-03", "modules": [module, "other/1"], "source": "modules"}
    change(removed=[gone], status=status)
    assert after(1) == []
    assert after(2) == ["removed"] * (state == "live")
    assert bool(after(181)) == (state != "retired")


def test_no_live_site_uses_what_it_had_taken_away_when_it_was_checked():
    for name in site.names():
        day = datetime.date.fromisoformat(site.load(name).checked.date)
        shown = paths.shorten(site.file(name))
        assert not [each for each in stale(day) if each.startswith(f"{shown}: key 'removed'")]
