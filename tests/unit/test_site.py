"""The sites' files: valid, whole, and each value with its source."""

from __future__ import annotations

import json
import pathlib
import re
import shutil

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.launch import batch, methods
from hvd.model import environment, site
from tests.unit.launching import launch

ENVIRONMENTS = sorted(name for each in site.names() for name in site.load(each).environments)


def content(name: str) -> dict:
    return yaml.safe_load(site.file(name).read_text())


@pytest.fixture
def sites(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the sites, to change."""
    shutil.copytree(paths.ENVIRONMENTS, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path)
    return tmp_path / "sites"


def change(sites: pathlib.Path, directory: str, **changes: object) -> None:
    file = sites / directory / site.SITE
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))


@pytest.mark.parametrize("name", site.names())
def test_a_site_is_whole(name) -> None:
    loaded = site.load(name)
    assert loaded.name == name
    assert loaded.launcher in loaded.allowed
    for successor in loaded.status.successors:
        assert site.load(successor).status.state != "retired"
    for use in loaded.environments.values():
        assert use.partition in loaded.partitions
        assert use.operations == "cpu" or loaded.partitions[use.partition].gpus
    for method in (*loaded.allowed, *loaded.refused):
        assert methods.METHODS[method].scheduler in ("", loaded.scheduler)
    for pitfall in loaded.pitfalls:
        assert pitfall.text.strip() and pitfall.source
        assert all(source.strip() for source in pitfall.source)


@pytest.mark.parametrize("name", site.names())
def test_every_source_is_named_in_full_and_used(name) -> None:
    data = content(name)
    cited = {cited for _, cited in site.citations(data)}
    packages = site.file(name).with_name("packages.yaml")
    if packages.exists():
        cited.update(*comment_citations(packages.read_text()))
    assert cited == set(data["sources"])
    for document in data["sources"].values():
        assert len(document) > 20, "a title, or a file and its repository"
        assert re.search(r"\b20\d\d\b|undated", document), f"no date: {document}"


def comment_citations(text: str) -> list:
    """The keys in comments such as "# source: a, b; ..." and "# derived from a: ..."."""
    phrases = re.findall(r"(?:source: |derived from )([a-z0-9-]+(?:, [a-z0-9-]+)*)", text)
    return [set(phrase.split(", ")) - {"the"} for phrase in phrases]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_can_be_launched(name) -> None:
    request = launch(name, program=("python", "train.py"))
    assert methods.line(request)[-2:] == ["python", "train.py"]
    if request.site.scheduler != "none":
        assert batch.script(request).endswith("python train.py\n")


@pytest.mark.parametrize("name", sorted(set(ENVIRONMENTS) & set(environment.names())))
def test_operations_are_those_of_the_spec(name) -> None:
    """Variants name NCCL and DDL; GPU-aware MPI is what a build for GPUs has without them."""
    variants = environment.load(name).root.variants
    operations = site.of(name).environments[name].operations
    assert variants.get("ddl", False) == (operations == "ddl")
    assert variants.get("nccl", False) == (operations in ("nccl", "rccl"))
    assert variants.get("rocm", False) == (operations == "rccl")
    assert (variants["cuda"] or variants["rocm"]) == (operations != "cpu")


@pytest.mark.parametrize("name", environment.names())
def test_every_environment_has_a_site(name) -> None:
    """The one whose externals it includes."""
    assert site.of(name).name == (environment.load(name).site or "local")


def test_every_key_of_the_schema_is_described() -> None:
    schema = json.loads(site.SCHEMA.read_text())

    def described(entry: dict) -> bool:
        return "description" in entry or entry.get("$ref") == "#/$defs/source"

    def walk(entry: object, path: str) -> None:
        if isinstance(entry, list):
            for each in entry:
                walk(each, path)
        if not isinstance(entry, dict):
            return
        if entry.get("type") == "object":
            assert entry.get("additionalProperties") is not None, path
            for key, value in entry.get("properties", {}).items():
                assert described(value), f"{path}:{key}"
        for key, value in entry.items():
            walk(value, f"{path}:{key}")

    walk(schema, "")


def test_the_site_of_an_environment() -> None:
    assert site.of("taurus-ml-mpi-hvd").name == "taurus-ml"
    with pytest.raises(HvdError, match="no environment is called 'moon-hvd'") as caught:
        site.of("moon-hvd")
    assert "perlmutter-hvd" in caught.value.remedy
    with pytest.raises(HvdError, match="no site is called 'moon'") as caught:
        site.load("moon")
    assert "perlmutter" in caught.value.remedy


def test_an_environment_that_its_site_does_not_list(sites) -> None:
    change(sites, "alpha", environments={"beta-hvd": {"partition": "alpha", "operations": "nccl"}})
    with pytest.raises(HvdError, match="alpha/site.yaml: key 'environments'.*'alpha-hvd'"):
        site.of("alpha-hvd")


def test_another_site_may_be_wrong(sites) -> None:
    (sites / "capella" / site.SITE).write_text("nonsense")
    assert site.of("alpha-hvd").name == "alpha"


def test_a_centre_keeps_its_site_outside_the_checkout(sites, tmp_path, monkeypatch) -> None:
    """One file for the site, one for the environment; what is here stays as it is."""
    centre = tmp_path / "centre"
    shutil.copytree(sites / "alpha", centre / "sites" / "moon")
    shutil.copytree(sites.parent / "alpha-hvd", centre / "moon-hvd", symlinks=True)
    spack_yaml = centre / "moon-hvd" / "spack.yaml"
    here, there = ".checkout/environments/sites/alpha", "$HVD_SITES/sites/moon"
    spack_yaml.write_text(spack_yaml.read_text().replace(here, there))
    use = {"partition": "alpha", "operations": "nccl"}
    change(centre / "sites", "moon", name="moon", environments={"moon-hvd": use})
    assert "moon" not in site.names()
    monkeypatch.setenv("HVD_SITES", str(centre))
    assert {"moon", "alpha"} <= set(site.names())
    assert {"moon-hvd", "alpha-hvd"} <= set(environment.names())
    assert site.of("moon-hvd").name == "moon"
    inputs = environment.load("moon-hvd").inputs()
    assert centre / "sites" / "moon" in inputs
    derived = environment.derive(environment.load("moon-hvd"), "py-horovod@0.27.0")
    assert there in derived.includes and derived.site == "moon"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"name": "beta"}, "name"),
        ({"launcher": "ibrun"}, "launcher"),
        ({"refused": {"srun": {"reason": "x", "source": "modules"}}}, "refused:srun"),
        (
            {"environments": {"alpha-hvd": {"partition": "alfa", "operations": "nccl"}}},
            "environments:alpha-hvd:partition",
        ),
        (
            {"status": {"state": "live", "successors": ["moon"], "source": "modules"}},
            "status:successors",
        ),
        ({"pitfalls": [{"text": "x", "source": "hearsay"}]}, "pitfalls:0:source"),
        # what the schema finds
        ({"checked": {"date": "yesterday", "by": "documents"}}, "checked:date"),
        ({"checked": {"date": "2026-12-24", "by": "hearsay"}}, "checked:by"),
        ({"status": {"state": "waiting", "source": "modules"}}, "status:waits_for"),
    ],
)
def test_a_site_with_a_fault_is_refused(changes, key, sites) -> None:
    change(sites, "alpha", **changes)
    with pytest.raises(HvdError, match=f"alpha/site.yaml: key '{key}'") as caught:
        site.load("alpha")
    assert caught.value.remedy


def test_what_the_fabric_sets_by_case() -> None:
    taurus = site.load("taurus-ml")
    assert taurus.variables("nccl", 2) == {"NCCL_DEBUG": "INFO"}
    assert taurus.variables("mpi", 2, rdma=True)["HOROVOD_MPI_THREADS_DISABLE"] == "1"
    perlmutter = site.load("perlmutter")
    enabled = "MPICH_GPU_SUPPORT_ENABLED"
    assert perlmutter.variables("nccl", 2)[enabled] == "0"
    assert perlmutter.variables("mpi", 1) == {enabled: "1"}
    assert perlmutter.variables("mpi", 2) == {enabled: "1", "SLURM_NETWORK": "no_vni"}


def test_what_an_environment_has_where_nothing_else_is_said(sites) -> None:
    environments = content("alpha")["environments"]
    environments["alpha-hvd"].pop("checked", None)
    change(sites, "alpha", environments=environments)
    assert site.load("alpha").environments["alpha-hvd"].checked == site.load("alpha").checked
    environments["alpha-hvd"]["checked"] = {"date": "2026-12-24", "by": "machine"}
    change(sites, "alpha", environments=environments)
    assert site.load("alpha").environments["alpha-hvd"].checked.by == "machine"
    assert site.load("alpha").checked.by == "documents"
    # and modules to build are those to run
    use = site.load("capella").environments["capella-hvd"]
    assert use.build == use.run
    assert use.run and use.run[0][:2] == ("release/24.04", "GCC/12.3.0")
