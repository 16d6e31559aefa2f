"""Environments, and those derived from them for another spec."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import environment

SPEC = "py-horovod@0.28.1 +mpi~gloo frameworks:=tensorflow"


def test_a_derived_environment_is_its_base_with_another_spec_which_alone_names_it() -> None:
    base = environment.load("local-hvd")
    derived = environment.derive(base, SPEC)
    assert derived.specs == [SPEC] and derived.includes == base.includes and not derived.site
    assert derived.directory == paths.state() / "environments" / derived.name
    assert (derived.directory / ".checkout").resolve() == paths.ROOT
    common = paths.ENVIRONMENTS / "common"
    assert common in [path.resolve() for path in derived.inputs()]
    # it can be named afterwards, and is none of the environments
    assert environment.load(derived.name) == derived
    assert derived.name not in environment.names()
    names = [environment.derive(base, text).name for text in (SPEC, f"  {SPEC} ", SPEC + " +cuda")]
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("local-hvd-") for name in names)


def test_other_roots_stay_and_includes_are_found_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path / "environments")
    site = paths.ENVIRONMENTS / "site"
    site.mkdir(parents=True)
    (site / "packages.yaml").write_text("packages: {}\n")
    (site / "spack.yaml").write_text(
        "spack: {specs: [py-horovod@0.28.0, py-mpi4py], include: [packages.yaml, {path: ../x}]}"
    )
    derived = environment.derive(environment.load("site"), SPEC)
    assert derived.specs == [SPEC, "py-mpi4py"]
    assert derived.includes == [
        ".checkout/environments/site/packages.yaml",
        ".checkout/environments/x",
    ]
    assert (derived.directory / derived.includes[0]).is_file()
    content = yaml.safe_load((derived.directory / "spack.yaml").read_text())["spack"]
    assert content["include"][1] == {"path": ".checkout/environments/x"}


@pytest.mark.parametrize("text", ["zlib", "py-horovod2@1", "+mpi"])
def test_a_spec_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(HvdError, match="not a spec of py-horovod") as caught:
        environment.derive(environment.load("local-hvd"), text)
    assert "frameworks:=" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "frameworks"),
    [
        ("py-horovod", {"pytorch"}),
        ("py-horovod frameworks:=tensorflow", {"tensorflow"}),
        ("py-horovod frameworks=tensorflow,keras,pytorch", {"tensorflow", "keras", "pytorch"}),
    ],
)
def test_frameworks_are_those_of_the_spec_or_the_recipes_default(text, frameworks) -> None:
    assert environment.derive(environment.load("local-hvd"), text).frameworks == frameworks
