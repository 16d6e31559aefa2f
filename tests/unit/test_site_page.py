"""The generated pages say what the environments say."""

from __future__ import annotations

import dataclasses
import re

import pytest

from hvd.cli import dev
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.docs import pages, site_page
from hvd.model import environment, recipe, site, specs
from hvd.solve import site_check

SITES = [name for name in site.names() if name != site.LOCAL]


def test_what_is_made_is_up_to_date() -> None:
    site_page.write(check=True)
    pages.write_seeds(check=True)
    dev.write_reference(check=True)
    assert sorted(path.stem for path in site_page.PAGES.glob("*.md")) == SITES


@pytest.mark.parametrize("name", SITES)
def test_what_the_user_makes_has_the_versions_of_the_site(name) -> None:
    """A wheel's local version, such as +cpu, is none of Spack's."""
    provided = site_check.externals(site_check.file(name))
    packages = {"torch": "py-torch", "pytorch": "py-torch", "tensorflow": "py-tensorflow"}
    made = [use.make for use in site.load(name).environments.values() if use.make]
    text = "\n".join(line.partition("    #")[0] for make in made for line in make.commands)
    for tool, version in re.findall(r"\b(torch|pytorch|tensorflow)(?:-gpu)?==?([\d.]+)", text):
        assert version in [each for each, _, _ in provided[packages[tool]]], tool


@pytest.mark.parametrize("name", SITES)
def test_a_page_has_what_the_user_makes_and_how_its_facts_are_known(name) -> None:
    machine = site.load(name)
    text = (site_page.PAGES / f"{name}.md").read_text()
    provided, _, made = text.partition("## What you install")
    rows = re.findall(r"^\| (\S+) \| [\d.]\S* \|", provided, re.MULTILINE)
    assert rows
    assert ("nobody has run it there" in text) == (machine.checked.by == "documents")
    assert all(each.date in text for each in machine.removed)
    assert all(machine.sources[key] in text for each in machine.pitfalls for key in each.source)
    asked = machine.status.state != "retired" and machine.checked.by != "machine"
    assert (f"$ ./hvd site check {name} > {name}-" in text) == asked
    for use in machine.environments.values():
        for package in use.make.packages if use.make else ():
            assert package not in rows and f"| {package} |" in made
            assert all(f"$ {line}\n" in made for line in use.make.commands)


@pytest.mark.parametrize("name", environment.of_sites())
def test_a_page_leads_from_a_login_node_to_two_ranks(name) -> None:
    text = (site_page.PAGES / f"{environment.load(name).site}.md").read_text()
    block = text.partition(f"## `{name}`")[2].partition("```console")[2].partition("```")[0]
    assert f"$ ./hvd build {name}" in block.splitlines()
    # whose activation loads the modules of the site too
    assert "spack env activate" not in block
    assert "./hvd launch" in block and "--nodes 2 --ranks-per-node 1" in block
    assert (paths.ROOT / "packages/py_horovod/test/allreduce.py").is_file()


def test_the_start_page_lists_retired_machines_apart() -> None:
    text = (paths.ROOT / "docs" / "index.md").read_text()
    live, _, retired = text.partition(":caption: Retired machines")
    for each in map(site.load, SITES):
        block = retired if each.status.state == "retired" else live
        assert f"\nsites/{each.name}\n" in block, each.name


@pytest.mark.parametrize(("by", "said"), [("rehearsal", True), ("machine", False)])
def test_the_table_says_whether_any_was_run_on_its_machine(monkeypatch, by, said) -> None:
    real = site.load

    def load(name):
        found = real(name)
        uses = {
            key: dataclasses.replace(use, checked=dataclasses.replace(use.checked, by=by))
            for key, use in found.environments.items()
        }
        return dataclasses.replace(found, environments=uses) if name == "alpha" else found

    monkeypatch.setattr(site, "load", load)
    assert ("No site's environment has run on its own machine" in site_page.environments()) == said


#: What ./hvd itself hands to the programs that it starts.
INTERNAL = {"HVD_CALLER_", "HVD_CALLER_PYTHONPATH", "HVD_COMPLETE"}


def test_the_page_of_variables_has_those_that_the_tool_reads() -> None:
    files = [paths.ROOT / "hvd", *paths.SOURCE.rglob("*.py")]
    read = {name for file in files for name in re.findall(r"\bHVD_\w+", file.read_text())}
    page = (paths.ROOT / "docs" / "variables.md").read_text()
    assert {name.rstrip("`") for name in re.findall(r"\bHVD_\w+", page)} == read - INTERNAL


def test_every_spec_of_the_table_is_accepted() -> None:
    horovod = recipe.load(environment.HOROVOD)
    text = (paths.ROOT / "docs" / "which-spec.md").read_text()
    rows = re.findall(r"`spack install (.*)`", text)
    assert len(rows) == 10
    for row in rows:
        horovod.check(horovod.complete(specs.parse(row)))


def test_only_the_marked_part_of_a_page_is_written(tmp_path) -> None:
    page = tmp_path / "page.md"
    around = f"# Ours\n\n{pages.BEGIN}\nold\n{pages.END}\n\n## More\n"
    page.write_text(around)
    with pytest.raises(HvdError, match="page.md is stale"):
        pages.rewrite(page, pages.BEGIN, "new\n", check=True)
    assert page.read_text() == around
    assert pages.rewrite(page, pages.BEGIN, "new\n", check=False) == [page]
    assert page.read_text() == around.replace("old", "new")
    assert pages.rewrite(page, pages.BEGIN, "new\n", check=True) == []
    with pytest.raises(HvdError, match="markers not found"):
        pages.rewrite(page, "<!-- other -->", "new\n", check=False)
    assert pages.rewrite(page, "", "all\n", check=False) and page.read_text() == "all\n"
