"""The pipelines of GitHub and GitLab, Renovate, and the check of sites: no logic in YAML."""

import datetime
import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from hvd.ci import gitlab
from hvd.ci.sites import stale
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.options import Options
from hvd.model import environment, site
from hvd.model.versions import pinned
from tests.unit.building import spec

WORKFLOWS = sorted((paths.ROOT / ".github" / "workflows").glob("*.yml"))
#: One command, and at most the file that takes what it prints.
CALL = re.compile(r'(\./hvd|\.ci/run|scripts/\S+)( [\w./$"-]+)*( >>"\$GITHUB_OUTPUT")?')


@pytest.mark.skipif(sys.version_info < (3, 10), reason="zizmor needs Python 3.10")
def test_workflows_have_no_known_weakness():
    """Such as unpinned actions, kept credentials and too wide permissions."""
    command = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress"]
    command += ["--persona=auditor", paths.ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_can_only_read_and_publish_the_site_and_see_no_secret(workflow):
    text = workflow.read_text()
    assert "pull_request_target" not in re.sub(r"#.*", "", text)
    assert "secrets." not in text and "secrets:" not in text
    for name, job in yaml.safe_load(text)["jobs"].items():
        assert job.get("timeout-minutes"), name
        runs = [step["run"] for step in job["steps"] if "run" in step]
        # "false" is what fails the job that sums the others up
        assert [run for run in runs if not CALL.fullmatch(run) and run != "false"] == []
        if name == "pages":
            # of main only, and without running code of the checkout
            assert "github.event_name == 'push'" in job["if"] and not runs
        else:
            assert job.get("permissions", {}) in ({}, {"contents": "read"}), name


def test_every_job_of_gitlab_is_one_call():
    content = yaml.safe_load((paths.ROOT / ".gitlab-ci.yml").read_text())
    jobs = {name: job for name, job in content.items() if "stage" in job}
    assert {job["stage"] for job in jobs.values()} == set(content["stages"])
    for name, job in jobs.items():
        assert "trigger" in job or CALL.fullmatch(job["script"]) and job["timeout"], name


def test_the_matrix_is_read_from_environments_and_pins(hvd):
    lines = dict(line.split("=", 1) for line in hvd("dev", "ci", "matrix").out.splitlines())
    assert yaml.safe_load(lines["environments"]) == environment.names()
    assert yaml.safe_load(lines["pairs"]) == [pair.name for pair in pinned().pairs]
    text = "".join(path.read_text() for path in WORKFLOWS)
    asked = re.findall(r"fromJSON\(needs\.\w+\.outputs\.(\w+)\)", text)
    assert set(asked) == set(lines)


def test_renovate_finds_what_is_pinned():
    """What one of its regular expressions misses would grow old unseen."""
    found = set()
    for manager in json.loads((paths.ROOT / "renovate.json").read_text())["customManagers"]:
        text = "".join((paths.ROOT / file).read_text() for file in manager["managerFilePatterns"])
        for pattern in manager["matchStrings"]:
            for match in re.finditer(pattern.replace("(?<", "(?P<"), text):
                name = manager.get("depNameTemplate") or match["depName"]
                found.add((name, match["currentValue"]))
    versions = pinned()
    for pair in versions.pairs:
        assert {("spack", pair.spack.version)} <= found, pair.name
        assert {("spack/spack-packages", pair.packages.version)} <= found, pair.name
    sets = versions.framework.sets.values()
    requirements = [text for each in sets for text in each.requirements]
    requirements += [versions.framework.mpi, versions.framework.cmake]
    requirements += versions.container.mpi.values()
    for text in requirements:
        name, _, version = text.partition(";")[0].partition("==")
        assert ((name, version) in found) != ("python_version <" in text), text
    # the recipe's bounds
    assert len([1 for name, version in found if name in ("torch", "tensorflow")]) == 4


PARENT = {"job": "generate: [one]", "pipeline": "77"}


@pytest.mark.parametrize("packages", [["a", "b"], []])
def test_a_smoke_test_comes_after_all_builds(monkeypatch, packages):
    monkeypatch.setenv("CI_JOB_NAME", PARENT["job"])
    monkeypatch.setenv("CI_PIPELINE_ID", PARENT["pipeline"])
    generated = {name: {"script": ["spack"], "needs": [PARENT]} for name in packages}
    generated["workflow"] = {"rules": [{"when": "always"}]}
    if packages:
        generated["b"]["needs"].insert(0, {"job": "a", "artifacts": False})
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
def test_runners_are_chosen_by_what_was_solved(tmp_path, site, target, variants, tags):
    horovod = spec("py-horovod", cuda=False, rocm=False, cuda_arch=["none"])
    horovod["parameters"].update(variants)
    horovod["arch"]["target"] = target
    lock = tmp_path / "spack.lock"
    lock.write_text(json.dumps({"concrete_specs": {"x": horovod}}))
    assert gitlab.runner_tags(types.SimpleNamespace(site=site, lockfile=lock)) == tags


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
