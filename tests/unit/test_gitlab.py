"""GitLab's child pipeline: its jobs, their environment, and where the key is."""

import base64
import json
import os
import stat
import types

import pytest
import yaml

from hvd.build.pipeline import Options
from hvd.ci.gitlab import generate, jobs, keys
from hvd.core.errors import HvdError
from hvd.model import environment

PARENT = {"job": "generate", "pipeline": "77"}
TAGS = {"one": ["x86_64"], "two": ["summit", "ppc64le", "gpu"]}


def generated(*titles):
    """What Spack generates: a chain of jobs, the last of which is the root."""
    jobs = {}
    for before, title in zip((None, *titles), titles):
        needs = [{"job": before, "artifacts": False}] if before else []
        jobs[title] = {
            "stage": f"stage-{len(jobs)}",
            "script": ["./hvd ci rebuild one"],
            "variables": {"SPACK_JOB_SPEC_PKG_NAME": title},
            "needs": [*needs, PARENT],
            "retry": {"max": 2, "when": ["script_failure"]},
        }
    stages = [job["stage"] for job in jobs.values()]
    variables = {"SPACK_CONCRETE_ENV_DIR": f".hvd/ci/{titles[0]}"}
    workflow = {"rules": [{"when": "always"}]}
    return {**jobs, "stages": stages, "variables": variables, "workflow": workflow}


def merged():
    nothing = {"no-specs-to-rebuild": {"script": ["echo"]}, "workflow": {}}
    return generate.merge({"one": generated("a", "b"), "two": nothing}, TAGS, PARENT)


def test_jobs_of_several_environments_are_one_pipeline():
    pipeline = merged()
    assert pipeline["stages"] == ["stage-0", "stage-1", "smoke"]
    jobs = {name: job for name, job in pipeline.items() if ":" in name}
    assert list(jobs) == ["one: a", "one: b", "one: smoke", "two: smoke"]
    # variables that Spack gives the whole pipeline belong to one environment here
    assert "variables" not in pipeline
    assert jobs["one: b"]["variables"] == {
        "SPACK_CONCRETE_ENV_DIR": ".hvd/ci/a",
        "SPACK_JOB_SPEC_PKG_NAME": "b",
    }
    assert {name: job["needs"] for name, job in jobs.items()} == {
        "one: a": [PARENT],
        "one: b": [{"job": "one: a", "artifacts": False}, PARENT],
        "one: smoke": [{"job": "one: b", "artifacts": False}, PARENT],
        # nothing to build: what is in the cache is tested all the same
        "two: smoke": [PARENT],
    }
    # a recipe that does not build is not tried again
    assert not [job for job in jobs.values() if "script_failure" in job["retry"]["when"]]
    assert jobs["two: smoke"]["tags"] == ["summit", "ppc64le", "gpu"]
    assert jobs["two: smoke"]["script"] == ["./hvd ci smoke two"]


def test_jobs_take_artifacts_of_the_job_that_generates_where_there_is_one(monkeypatch):
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_JOB_NAME", "generate")
    monkeypatch.setenv("CI_PIPELINE_ID", "77")
    assert generate.parent() == PARENT
    # gitlab-ci-local says so, and has no child pipelines
    monkeypatch.setenv("GITLAB_CI", "false")
    assert generate.parent() is None
    alone = generate.merge({"one": generated("a", "b")}, TAGS, generate.parent())
    assert alone["one: a"]["needs"] == []
    assert alone["one: smoke"]["needs"] == [{"job": "one: b", "artifacts": False}]


@pytest.fixture
def solved(tmp_path):
    """A function that gives a site's environment with a solution for a processor."""

    def make(site, target, **variants):
        node = {
            "name": "py-horovod",
            "arch": {"target": target},
            "parameters": {"cuda": False, "rocm": False, "cuda_arch": ["none"], **variants},
        }
        lock = tmp_path / "spack.lock"
        lock.write_text(json.dumps({"concrete_specs": {"x": node}}))
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
    assert generate.runner_tags(solved(site, target, **variants)) == tags


def test_the_environment_for_spack_has_a_mirror_and_jobs(state, monkeypatch, solved):
    summit = environment.load("summit-hvd")
    lock = solved("summit", "power9le", cuda=True).lockfile
    monkeypatch.setattr(environment.Environment, "lockfile", property(lambda self: lock))
    place = generate.write(summit, "file:///cache", sign=True)
    content = yaml.safe_load((place / "spack.yaml").read_text())["spack"]
    assert content["specs"] == summit.specs
    mirror = {"url": "file:///cache", "signed": True, "binary": True, "source": False}
    assert content["mirrors"] == {"buildcache-destination": mirror}
    generation = content["ci"]["pipeline-gen"]
    assert generation[0]["any-job"]["tags"] == ["summit", "ppc64le", "gpu"]
    assert generation[1]["build-job"]["script:"] == ["./hvd ci rebuild summit-hvd"]
    # each is where it was
    found = [(place / entry["path"]).resolve() for entry in content["include"]]
    assert found == [(summit.directory / entry).resolve() for entry in summit.includes]
    assert [entry["optional"] for entry in content["include"]] == [
        f.name == "externals.yaml" for f in found
    ]
    assert (place / "spack.lock").read_bytes() == lock.read_bytes()


def test_what_a_runner_lacks_of_the_solution_is_named(state):
    with pytest.raises(HvdError, match="spack.lock: No such file"):
        jobs.missing_externals("local-hvd")
    lock = generate.concrete("local-hvd") / "spack.lock"
    lock.parent.mkdir(parents=True)
    nodes = {
        "w": {"name": "openmpi", "external": {"path": "/no/such/openmpi"}},
        "x": {"name": "openmpi", "external": {"path": str(state)}},
        "y": {"name": "gcc", "external": {"path": str(state)}},
        "z": {"name": "py-horovod"},
    }
    lock.write_text(json.dumps({"concrete_specs": nodes}))
    missing = jobs.missing_externals("local-hvd")
    assert missing == ["openmpi is not in /no/such/openmpi"]


@pytest.mark.parametrize(("protected", "key"), [("true", "secret"), ("false", ""), ("", "")])
def test_a_key_is_for_protected_branches_and_in_no_environment(monkeypatch, protected, key):
    monkeypatch.setenv(keys.KEY, "secret")
    monkeypatch.setenv(keys.PROTECTED, protected)
    assert keys.take() == key
    assert keys.KEY not in os.environ


def test_a_keyring_lives_as_long_as_its_job():
    with keys.keyring(True) as home:
        assert os.environ["SPACK_GNUPGHOME"] == str(home)
        assert os.environ["SPACK_REQUIRE_SIGNING"] == "True"
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        file = keys.write(base64.b64encode(b"armoured").decode(), home)
        assert file.read_bytes() == b"armoured"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not home.exists()
    assert "SPACK_GNUPGHOME" not in os.environ and "SPACK_REQUIRE_SIGNING" not in os.environ
    with keys.keyring(False):
        assert os.environ["SPACK_REQUIRE_SIGNING"] == "False"


def test_a_wrong_key_is_not_shown(tmp_path):
    with pytest.raises(HvdError, match="SPACK_SIGNING_KEY is not base64") as error:
        keys.write("-----BEGIN", tmp_path)
    assert "BEGIN" not in error.value.message + error.value.remedy


def test_rebuild_is_for_generated_jobs(monkeypatch):
    monkeypatch.delenv("SPACK_JOB_SPEC_PKG_NAME", raising=False)
    with pytest.raises(HvdError, match="./hvd ci rebuild"):
        jobs.rebuild("local-hvd", Options(engine="spack"))


def test_the_reason_of_a_failure_is_what_is_shown():
    output = """$ spack ci rebuild
[1;31m==>[0m Error: patch failed
==> Warning: Package not installed, falling back to use stage dir
==> Warning: Unable to copy files (/a/spack-build-out.txt) to artifacts /b: No such file

[34mTo reproduce this build locally, run:

    spack ci reproduce-build https://gitlab/artifacts
"""
    assert jobs.reason(output).splitlines()[1:] == ["==> Error: patch failed"]
