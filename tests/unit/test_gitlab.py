"""GitLab's child pipeline: its jobs, their runners, and where the key is."""

import json
import types

import pytest
import yaml

from hvd.ci import gitlab
from hvd.core.errors import HvdError
from hvd.engines.pipeline import Options
from hvd.model import environment

PARENT = {"job": "generate: [one]", "pipeline": "77"}


@pytest.mark.parametrize("packages", [["a", "b"], []])
def test_a_smoke_test_comes_after_all_builds(monkeypatch, packages):
    monkeypatch.setenv("CI_JOB_NAME", PARENT["job"])
    monkeypatch.setenv("CI_PIPELINE_ID", PARENT["pipeline"])
    generated = {"workflow": {"rules": [{"when": "always"}]}}
    if packages:
        before = [{"job": "a", "artifacts": False}]
        generated["a"] = {"script": ["spack"], "needs": [PARENT]}
        generated["b"] = {"script": ["spack"], "needs": [*before, PARENT]}
        generated["stages"] = ["stage-0", "stage-1"]
    else:
        generated["no-specs-to-rebuild"] = {"script": ["echo"]}
    made = gitlab.for_runners(generated, "one", ["summit", "gpu"])
    assert list(made["stages"])[-1] == "smoke" and "no-specs-to-rebuild" not in made
    last = [{"job": "b", "artifacts": False}] if packages else []
    assert made["smoke"]["needs"] == [*last, PARENT]
    assert made["smoke"]["script"] == ["./hvd dev ci smoke one"]
    for job in [made[name] for name in [*packages, "smoke"]]:
        # a recipe that does not build is not tried again
        assert job["tags"] == ["summit", "gpu"] and "script_failure" not in job["retry"]["when"]
    assert all(made[name]["script"] == ["./hvd dev ci rebuild one"] for name in packages)


@pytest.fixture
def solved(tmp_path):
    """A function that gives a site's environment with a solution for a processor."""

    def make(site, target, **variants):
        arch = {"platform": "linux", "platform_os": "x", "target": target}
        parameters = {"cuda": False, "rocm": False, "cuda_arch": ["none"], **variants}
        spec = {"name": "py-horovod", "version": "1", "arch": arch, "parameters": parameters}
        lock = tmp_path / "spack.lock"
        lock.write_text(json.dumps({"concrete_specs": {"x": spec}}))
        return types.SimpleNamespace(site=site, lockfile=lock)

    return make


@pytest.mark.parametrize(
    ("site", "target", "variants", "tags"),
    [
        ("", "x86_64_v3", {}, ["x86_64"]),
        ("stampede3", {"name": "sapphirerapids"}, {}, ["stampede3", "x86_64"]),
        ("summit", "power9le", {"cuda": True}, ["summit", "ppc64le", "gpu"]),
        ("frontier", {"name": "zen3"}, {"rocm": True}, ["frontier", "x86_64", "gpu"]),
        ("vista", {"name": "neoverse_v2"}, {"cuda": True}, ["vista", "aarch64", "gpu"]),
    ],
)
def test_runners_are_chosen_by_what_was_solved(solved, site, target, variants, tags):
    assert gitlab.runner_tags(solved(site, target, **variants)) == tags


def test_the_environment_for_spack_has_the_mirror_and_every_include(state, monkeypatch, solved):
    summit = environment.load("summit-hvd")
    lock = solved("summit", "power9le").lockfile
    monkeypatch.setattr(environment.Environment, "lockfile", property(lambda self: lock))
    place = gitlab.write_environment(summit, "file:///cache")
    content = yaml.safe_load((place / "spack.yaml").read_text())["spack"]
    assert content["specs"] == summit.specs
    assert content["mirrors"][gitlab.MIRROR]["url"] == "file:///cache"
    found = [(place / entry["path"]).resolve() for entry in content["include"]]
    assert found == [(summit.directory / entry).resolve() for entry in summit.includes]
    optional = [each.name == "externals.yaml" for each in found]
    assert [entry["optional"] for entry in content["include"]] == optional
    assert (place / "spack.lock").read_bytes() == lock.read_bytes()


def test_what_a_runner_lacks_is_named(state, monkeypatch):
    with pytest.raises(HvdError, match="spack.lock"):
        gitlab.require_externals("local-hvd")
    lock = gitlab.concrete("local-hvd") / "spack.lock"
    lock.parent.mkdir(parents=True)
    nodes = {"x": {"name": "gcc", "external": {"path": str(state)}}, "y": {"name": "py-horovod"}}
    lock.write_text(json.dumps({"concrete_specs": nodes}))
    gitlab.require_externals("local-hvd")
    nodes["w"] = {"name": "openmpi", "external": {"path": "/no/such/openmpi"}}
    lock.write_text(json.dumps({"concrete_specs": nodes}))
    with pytest.raises(HvdError, match="openmpi is not in /no/such/openmpi on this runner"):
        gitlab.require_externals("local-hvd")
    monkeypatch.delenv("SPACK_JOB_SPEC_PKG_NAME", raising=False)
    with pytest.raises(HvdError, match="only for jobs of a generated pipeline"):
        gitlab.rebuild("local-hvd", Options(engine="spack"))


@pytest.mark.parametrize(("protected", "key"), [("true", "/key"), ("false", ""), ("", "")])
def test_a_key_is_for_protected_branches(monkeypatch, protected, key):
    monkeypatch.setenv(gitlab.KEY, "/key")
    monkeypatch.setenv("CI_COMMIT_REF_PROTECTED", protected)
    assert gitlab.signing_key() == key
