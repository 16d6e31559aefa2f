"""Open a change with the newer versions that were tried: a merge request or a pull request."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Sequence

from hvd.core.errors import HvdError
from hvd.upkeep import checkout, proposal
from hvd.upkeep.proposal import Proposal

#: The branch of the change; a later run replaces what it has.
BRANCH = "hvd-versions"
_PERMISSION = "the job needs the permission to push; see docs/pipelines.md"


def propose(proposals: Sequence[Proposal]) -> str:
    """Commit what does not fail to a branch, push it to ``origin``, and open a change.

    This checkout keeps its own commit and files.  On GitHub, ``gh`` pushes and opens; elsewhere
    GitLab's push options do.

    Returns:
        The branch; empty if there is nothing to change.

    Raises:
        HvdError: the push, or the change, was refused.
    """
    wanted = [each for each in proposals if each.changes and each.verdict != "fails"]
    if not wanted:
        return ""
    # those that fail are in the text
    title, text = f"ci: {', '.join(each.id for each in wanted)}", proposal.page(proposals)
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch, "tree")
        with checkout.worktree(tree, "HEAD", _PERMISSION):
            proposal.apply(wanted, tree)
            named = ("-c", "user.name=hvd", "-c", "user.email=hvd@localhost")
            _git(tree, *named, "commit", "--quiet", "--all", "-m", f"{title}\n\n{text}")
            if os.environ.get("GITHUB_ACTIONS") == "true":
                _pull_request(tree, title, text)
            else:
                _merge_request(tree, title, text)
    return BRANCH


def _merge_request(tree: pathlib.Path, title: str, text: str) -> None:
    # https://docs.gitlab.com/topics/git/commit/#push-options: an option has no line break of its
    # own, and GitLab takes \n for one
    options = ("create", f"title={title}", "remove_source_branch")
    words = [f"-omerge_request.{option}" for option in options]
    words.append("-omerge_request.description=" + text.replace("\n", "\\n"))
    _push(tree, *words)


def _pull_request(tree: pathlib.Path, title: str, text: str) -> None:
    if not shutil.which("gh"):
        raise HvdError("gh is not on PATH", "run this on one of GitHub's own runners")
    # the token is in GH_TOKEN, and on no command line
    _push(tree, credentials="!gh auth git-credential")
    body = tree / "body.md"
    body.write_text(text)
    state = ["gh", "pr", "view", BRANCH, "--json", "state", "--jq", ".state"]
    there = subprocess.run(state, cwd=tree, capture_output=True, text=True, timeout=300)
    what = ["edit", BRANCH] if there.stdout.strip() == "OPEN" else ["create", "--head", BRANCH]
    command = ["gh", "pr", *what, "--title", title, "--body-file", body]
    checkout.run(command, tree, _PERMISSION)


def _push(tree: pathlib.Path, *options: str, credentials: str = "") -> None:
    settings = ("-c", f"credential.helper={credentials}") if credentials else ()
    branch = ("origin", f"HEAD:refs/heads/{BRANCH}")
    _git(tree, *settings, "push", "--quiet", "--force", *options, *branch)


def _git(directory: pathlib.Path, *words: object) -> None:
    checkout.git(directory, *words, remedy=_PERMISSION)
