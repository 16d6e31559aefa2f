"""The pipelines of GitHub and GitLab, and Renovate: safe, with limits, and no logic in YAML."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hvd.core import paths
from hvd.model import environment
from hvd.model.versions import pinned

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
        name = manager.get("depNameTemplate")
        for file in manager["managerFilePatterns"]:
            for pattern in manager["matchStrings"]:
                for match in re.finditer(
                    pattern.replace("(?<", "(?P<"), (paths.ROOT / file).read_text()
                ):
                    found.add((name or match["depName"], match["currentValue"]))
    versions = pinned()
    for pair in versions.pairs:
        assert {("spack", pair.spack.version)} <= found, pair.name
        assert {("spack/spack-packages", pair.packages.version)} <= found, pair.name
    requirements = [
        text for each in versions.framework.sets.values() for text in each.requirements
    ]
    requirements += [versions.framework.mpi, versions.framework.cmake]
    requirements += versions.container.mpi.values()
    for text in requirements:
        name, _, version = text.partition(";")[0].partition("==")
        assert ((name, version) in found) != ("python_version <" in text), text
    # the recipe's bounds
    assert len([1 for name, version in found if name in ("torch", "tensorflow")]) == 4
