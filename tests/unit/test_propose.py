"""``./hvd ci propose``: a branch with the newer versions, and the request to merge it."""

from __future__ import annotations

import json
import pathlib

import pytest

from hvd.upkeep import checkout, proposal
from hvd.upkeep.proposal import Change, Proposal, Tried
from tests.checkout import commit, run, script

#: Keeps the options of a push.
HOOK = """
for n in $(seq 0 $((GIT_PUSH_OPTION_COUNT - 1))); do
    eval "printf '%s\\n' \\"\\$GIT_PUSH_OPTION_$n\\""
done
"""


@pytest.fixture
def copy(tmp_path) -> pathlib.Path:
    """A clone of this project, as jobs have one, whose origin takes options as GitLab does."""
    checkout.copy(tmp_path / "copy")
    commit(tmp_path / "copy")
    origin = tmp_path / "origin.git"
    run(["git", "clone", "--quiet", "--bare", tmp_path / "copy", origin])
    run(["git", "-C", origin, "config", "receive.advertisePushOptions", "true"])
    script(origin / "hooks" / "pre-receive", f"({HOOK}) >>{tmp_path / 'options'}")
    run(["git", "-C", tmp_path / "copy", "remote", "add", "origin", origin])
    return tmp_path / "copy"


@pytest.fixture
def proposals(copy, tmp_path) -> pathlib.Path:
    line = (copy / "repo.yaml").read_text().split("\n")[0]

    def proposed(name: str, result: str) -> Proposal:
        changes = (Change("repo.yaml", 1, line, f"{line}\n# {name}"),)
        return Proposal(name, "1", "2", changes, ("c",), results=(Tried("c", result),))

    # what has no line to change is told
    own = Proposal("ci/requirements.txt", "rich 1", "rich 2", (), (), "Make it again.")
    proposal.write([proposed("a", "passed"), proposed("b", "failed"), own], tmp_path / "found")
    return tmp_path / "found"


def propose(copy, proposals, status=0, **variables) -> str:
    environment = {**checkout.variables(copy), "GITHUB_ACTIONS": "", **variables}
    words = checkout.command("ci", "propose", "--from", proposals)
    return run(words, status, env=environment, cwd=copy)


def origin_has(tmp_path, *words: str) -> str:
    return run(["git", "-C", tmp_path / "origin.git", *words])


def test_a_merge_request_has_what_works_and_the_text_of_all(copy, proposals, tmp_path):
    before = run(["git", "-C", copy, "rev-parse", "HEAD"])
    for _ in range(2):  # a later one takes the place of the first
        assert "pushed to hvd-versions" in propose(copy, proposals)
    assert origin_has(tmp_path, "rev-list", "--count", "hvd-versions").strip() == "2"
    text = origin_has(tmp_path, "show", "hvd-versions:repo.yaml")
    assert text.splitlines()[1] == "# a" and "# b" not in text
    options = dict(
        line.partition("=")[::2] for line in (tmp_path / "options").read_text().splitlines()
    )
    assert "merge_request.create" in options and options["merge_request.title"] == "ci: a@2"
    # line breaks as GitLab reads them
    page = proposal.page(proposal.load(proposals))
    assert options["merge_request.description"].replace("\\n", "\n") == page
    message = origin_has(tmp_path, "log", "-1", "--format=%B", "hvd-versions")
    assert "| b | 1 | 2 | fails |" in message and "Make it again." in message
    # the checkout is as it was
    assert run(["git", "-C", copy, "rev-parse", "HEAD"]) == before
    assert run(["git", "-C", copy, "status", "--porcelain"]) == ""
    assert len(run(["git", "-C", copy, "worktree", "list"]).splitlines()) == 1


@pytest.mark.parametrize(("state", "does"), [("", "create --head"), ("OPEN", "edit")])
def test_a_pull_request_is_opened_or_brought_up_to_date(copy, proposals, tmp_path, state, does):
    calls = tmp_path / "calls"
    line = f'echo "$@" >>{calls}; case "$2" in view) echo "{state}";; esac'
    gh = script(tmp_path / "bin" / "gh", line)
    path = f"{gh.parent}:/usr/bin:/bin"
    propose(copy, proposals, GITHUB_ACTIONS="true", PATH=path)
    assert f"pr {does} hvd-versions --title ci: a@2" in calls.read_text()
    assert "# a" in origin_has(tmp_path, "show", "hvd-versions:repo.yaml")


def test_a_push_that_is_refused_is_an_error(copy, proposals, tmp_path):
    script(tmp_path / "origin.git" / "hooks" / "pre-receive", "echo You may not; exit 1")
    said = propose(copy, proposals, status=2)
    assert "You may not" in said and "docs/pipelines.md" in said
    assert len(run(["git", "-C", copy, "worktree", "list"]).splitlines()) == 1


def test_nothing_to_change_pushes_nothing(copy, proposals, tmp_path):
    data = json.loads((proposals / proposal.JSON).read_text())
    data["proposals"] = data["proposals"][1:]
    (proposals / proposal.JSON).write_text(json.dumps(data))
    assert "nothing to change" in propose(copy, proposals)
    assert origin_has(tmp_path, "branch", "--list", "hvd-versions") == ""
