"""The pages of the sites and the README's table say what the environments say."""

from __future__ import annotations

import re
import shutil

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.docs import site_page
from hvd.model import environment, site
from hvd.solve import site_check

SITES = [name for name in site.names() if name != site.LOCAL]


def test_what_is_made_is_up_to_date() -> None:
    site_page.write(check=True)


def test_every_site_has_a_page_and_every_page_a_site() -> None:
    assert sorted(path.stem for path in site_page.PAGES.glob("*.md")) == SITES


@pytest.mark.parametrize("name", SITES)
def test_what_the_user_makes_has_the_versions_of_the_site(name) -> None:
    """A wheel's local version, such as +cpu, is none of Spack's."""
    provided = site_check.externals(site_check.file(name))
    packages = {"torch": "py-torch", "pytorch": "py-torch", "tensorflow": "py-tensorflow"}
    text = "\n".join(
        line.partition("    #")[0]
        for use in site.load(name).environments.values()
        if use.make
        for line in use.make.commands
    )
    for tool, version in re.findall(r"\b(torch|pytorch|tensorflow)(?:-gpu)?==?([\d.]+)", text):
        assert version in [each for each, _, _ in provided[packages[tool]]], tool


@pytest.mark.parametrize("name", SITES)
def test_a_page_has_what_the_user_makes_and_how_its_facts_are_known(name) -> None:
    machine = site.load(name)
    text = (site_page.PAGES / f"{name}.md").read_text()
    provided, _, made = text.partition("## What you install")
    rows = re.findall(r"^\| (\S+) \| [\d.]\S* \|", provided, re.MULTILINE)
    assert rows
    assert f"Checked on {machine.checked.date} " in text
    assert ("nobody has run it there" in text) == (machine.checked.by == "documents")
    assert all(each.date in text for each in machine.removed)
    asked = machine.status.state != "retired" and machine.checked.by != "machine"
    assert (f"$ ./hvd site check {name} --write\n" in text) == asked
    for environment_name, use in machine.environments.items():
        line = rf"^\$ \./hvd check {environment_name}( .*)? >> {name}-"
        assert bool(re.search(line, text, re.MULTILINE)) == asked
        for package in use.make.packages if use.make else ():
            assert package not in rows and f"| {package} |" in made
            assert all(f"$ {line}\n" in made for line in use.make.commands)


@pytest.mark.parametrize("name", environment.of_sites())
def test_a_page_leads_from_a_login_node_to_two_ranks(name) -> None:
    text = (site_page.PAGES / f"{environment.load(name).site}.md").read_text()
    block = text.partition(f"## `{name}`")[2].partition("```console")[2].partition("```")[0]
    lines = [line for line in block.splitlines() if line.startswith("$ ")]
    assert f"$ ./hvd build {name}" in lines
    assert "./hvd launch" in block and "--nodes 2 --ranks-per-node 1" in block
    assert (paths.ROOT / "packages/py_horovod/test/allreduce.py").is_file()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A README that is ours to change, and pages that are up to date."""
    readme = tmp_path / "README.md"
    monkeypatch.setattr(site_page, "README", readme)
    monkeypatch.setattr(site_page, "PAGES", shutil.copytree(site_page.PAGES, tmp_path / "sites"))
    return readme


def test_only_what_is_made_is_written(elsewhere) -> None:
    around = f"# Ours\n\n{site_page.BEGIN}\nold\n{site_page.END}\n\n## More\n"
    elsewhere.write_text(around)
    with pytest.raises(HvdError, match="README.md") as caught:
        site_page.write(check=True)
    assert caught.value.remedy == "./hvd docs"
    assert elsewhere.read_text() == around
    assert site_page.write(check=False) == [elsewhere]
    text = elsewhere.read_text()
    assert text.startswith("# Ours\n\n") and text.endswith("\n\n## More\n")
    assert "old" not in text and "| [`perlmutter-hvd`](docs/sites/perlmutter.md) |" in text
    assert site_page.write(check=False) == []


def test_a_file_without_a_place_for_it_is_named(elsewhere) -> None:
    elsewhere.write_text("# Ours\n")
    with pytest.raises(HvdError, match="README.md") as caught:
        site_page.write(check=False)
    assert site_page.BEGIN in caught.value.remedy
    assert elsewhere.read_text() == "# Ours\n"
