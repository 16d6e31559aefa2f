"""Open a change with the newer versions that were tried: a merge request or a pull request."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import List, Sequence

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.upkeep import change, proposal
from hvd.upkeep.proposal import Proposal

#: The branch of the change; a later run replaces what it has.
BRANCH = "hvd-versions"
#: Seconds for one command.
_TIMEOUT = 300


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
        _git(paths.ROOT, "worktree", "add", "--quiet", "--detach", tree)
        try:
            change.apply((line for each in wanted for line in each.changes), tree)
            named = ("-c", "user.name=hvd", "-c", "user.email=hvd@localhost")
            _git(tree, *named, "commit", "--quiet", "--all", "-m", f"{title}\n\n{text}")
            if os.environ.get("GITHUB_ACTIONS") == "true":
                _pull_request(tree, title, text)
            else:
                _merge_request(tree, title, text)
        finally:
            _git(paths.ROOT, "worktree", "remove", "--force", tree)
    return BRANCH


def _merge_request(tree: pathlib.Path, title: str, text: str) -> None:
    # https://docs.gitlab.com/topics/git/commit/#push-options: an option has no line break of its
    # own, and GitLab takes \n for one
    options = {
        "create": "",
        "title": title,
        "description": text.replace("\n", "\\n"),
        "remove_source_branch": "",
    }
    words: List[object] = []
    for name, value in options.items():
        words += ["-o", f"merge_request.{name}" + (f"={value}" if value else "")]
    _git(tree, "push", "--quiet", "--force", *words, "origin", f"HEAD:refs/heads/{BRANCH}")


def _pull_request(tree: pathlib.Path, title: str, text: str) -> None:
    if not shutil.which("gh"):
        raise HvdError("gh is not on PATH", "run this on one of GitHub's own runners")
    # the token is in GH_TOKEN, and on no command line
    credentials = ("-c", "credential.helper=!gh auth git-credential")
    _git(tree, *credentials, "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{BRANCH}")
    body = tree / "body.md"
    body.write_text(text)
    state = ["gh", "pr", "view", BRANCH, "--json", "state", "--jq", ".state"]
    there = subprocess.run(state, cwd=tree, capture_output=True, text=True, timeout=_TIMEOUT)
    what = ["edit", BRANCH] if there.stdout.strip() == "OPEN" else ["create", "--head", BRANCH]
    _run(["gh", "pr", *what, "--title", title, "--body-file", str(body)], tree)


def _git(directory: pathlib.Path, *words: object) -> None:
    _run(["git", "-C", str(directory), *map(str, words)], directory)


def _run(command: List[str], directory: pathlib.Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
    )
    if done.returncode != 0:
        raise HvdError(
            f"`{' '.join(command[:5])} ...` failed: {done.stdout.strip()}",
            "the job needs the permission to push; see docs/pipelines.md",
        )
