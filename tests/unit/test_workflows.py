"""The pipelines of GitHub and GitLab: safe, with limits, and each step one call of ``./hvd``."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hvd.cli import ci
from hvd.core import paths
from hvd.model import environment
from hvd.model.versions import pinned

WORKFLOWS = sorted((paths.ROOT / ".github" / "workflows").glob("*.yml"))
GITLAB = paths.ROOT / ".gitlab-ci.yml"
#: One call of ``./hvd`` or ``.ci/run``, and at most the file that takes what it prints.
CALL = re.compile(r'(\./hvd|\.ci/run)( [\w./$"-]+)*( >>"\$GITHUB_OUTPUT")?')
#: Keys of .gitlab-ci.yml that are no jobs.
NO_JOBS = ("workflow", "stages", "variables", "default")


def jobs(workflow):
    return yaml.safe_load(workflow.read_text())["jobs"]


def steps(workflow):
    return [step for job in jobs(workflow).values() for step in job["steps"]]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request):
    return request.param


def test_there_are_workflows():
    assert [path.stem for path in WORKFLOWS] == ["ci", "nightly", "updates"]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="zizmor needs Python 3.10")
def test_workflows_have_no_known_weakness(tmp_path):
    def zizmor(*arguments):
        command = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress"]
        return subprocess.run([*command, *arguments], capture_output=True, text=True)

    done = zizmor("--persona=auditor", paths.ROOT / ".github")
    assert done.returncode == 0, done.stdout + done.stderr
    # it would find one
    text = WORKFLOWS[0].read_text().replace("permissions: {}", "permissions: write-all")
    (tmp_path / "ci.yml").write_text(text)
    done = zizmor(tmp_path / "ci.yml")
    assert done.returncode != 0 and "excessive-permissions" in done.stdout, done.stdout


def test_workflows_can_only_read_publish_the_site_and_propose_and_see_no_secret(workflow):
    text = workflow.read_text()
    assert "pull_request_target" not in re.sub(r"#.*", "", text)
    assert "secrets." not in text and "secrets:" not in text
    assert yaml.safe_load(text)["permissions"] == {}
    for name, job in jobs(workflow).items():
        permissions = job.get("permissions", {})
        if name == "pages":
            assert permissions == {"pages": "write", "id-token": "write"}
            # of main only, and without running code of the checkout
            assert "github.event_name == 'push'" in job["if"]
            assert [step["uses"].partition("@")[0] for step in job["steps"]] == [
                "actions/deploy-pages"
            ]
        elif name == "propose":
            assert permissions == {"contents": "write", "pull-requests": "write"}
            # never for a push or a pull request, and only where it is turned on
            triggers = yaml.safe_load(text)[True]
            assert set(triggers) == {"schedule", "workflow_dispatch"}
            assert "vars.HVD_PROPOSE == 'true'" in job["if"]
            # what proposals try is run in another job
            assert [s["run"] for s in job["steps"] if "run" in s] == ["./hvd ci propose"]
        else:
            assert permissions in ({}, {"contents": "read"}), name


def test_every_job_has_a_limit_and_every_action_a_commit(workflow):
    assert [n for n, job in jobs(workflow).items() if not job.get("timeout-minutes")] == []
    for line in re.findall(r"uses: .*", workflow.read_text()):
        assert re.fullmatch(r"uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line
    checkouts = [s for s in steps(workflow) if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts and all(s["with"] == {"persist-credentials": False} for s in checkouts)


def test_every_step_is_one_call(workflow):
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    # "false" is what fails the job that sums the others up
    assert [run for run in runs if not CALL.fullmatch(run) and run != "false"] == []
    assert any(run.startswith(("./hvd", ".ci/run")) for run in runs)


def test_every_job_of_gitlab_is_one_call():
    content = yaml.safe_load(GITLAB.read_text())
    found = {n: job for n, job in content.items() if n not in NO_JOBS}
    assert {job["stage"] for job in found.values()} == set(content["stages"])
    for name, job in found.items():
        assert "trigger" in job or CALL.fullmatch(job["script"]), name
        assert "trigger" in job or job.get("timeout"), name


def test_the_sites_are_looked_at_every_night():
    """With a job of its own, so that it hides no other failure."""
    job = jobs(paths.ROOT / ".github" / "workflows" / "nightly.yml")["sites"]
    assert job["steps"][-1] == {"run": "./hvd ci sites"}
    job = yaml.safe_load(GITLAB.read_text())["sites"]
    assert job["script"] == "./hvd ci sites"
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]


def test_the_matrix_is_read_from_environments_and_pins(capsys):
    ci.print_matrix()
    lines = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert yaml.safe_load(lines["environments"]) == environment.names()
    assert yaml.safe_load(lines["pairs"]) == [pair.name for pair in pinned().pairs]
    # so that nothing of it stands in the workflows as well
    text = "".join(path.read_text() for path in WORKFLOWS)
    assert not [name for name in environment.of_sites() if name in text]
    assert not [pair.name for pair in pinned().pairs if pair.name in text]
    asked = re.findall(r"fromJSON\(needs\.\w+\.outputs\.(\w+)\)", text)
    assert set(asked) == set(lines)
