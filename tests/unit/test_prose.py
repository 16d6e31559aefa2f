"""Prose: spelling, and phrases that docs/words.txt has better ones for.

Run by pre-commit as well: ``python tests/unit/test_prose.py``.
"""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys
from typing import Iterator, List, NamedTuple, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: What is checked, as patterns of paths.
CHECKED = (
    *("*.md", "docs/*.md", "docs/sites/*.md", "tests/README.md"),
    *("examples/*.md", "examples/*/*.py", "ci/src/**/*.py", "ci/src/**/*.j2"),
    *("ci/*.yaml", "environments/*/spack.yaml", "environments/*/*/*.yaml"),
    *(".gitlab-ci.yml", ".github/**/*.yml", ".github/**/*.md"),
)
#: The generated part of a page is checked in the template and the data that it comes from.
GENERATED = re.compile(r"<!-- made by .*?<!-- end -->", re.DOTALL)
WORDS = ROOT / "docs" / "words.txt"


class Rule(NamedTuple):
    """A phrase as a regular expression, and what to write instead."""

    phrase: str
    pattern: re.Pattern
    better: str


def files() -> List[pathlib.Path]:
    return sorted(path for pattern in CHECKED for path in ROOT.glob(pattern))


def rules() -> List[Rule]:
    lines = [line for line in WORDS.read_text().splitlines() if line and line[0] != "#"]
    return [_rule(*line.split(" -> ")) for line in lines]


def _rule(phrase: str, better: str) -> Rule:
    words = r"\s+".join(re.escape(word) for word in phrase.lstrip("^*").split())
    flags = 0 if phrase.lower() != phrase else re.IGNORECASE
    begin = r"\A\s*" if phrase.startswith("^") else r"(?<![\w-])"
    return Rule(phrase, re.compile(rf"{begin}{words}(?![\w-])", flags), better)


def markdown(text: str) -> str:
    """``text`` without its code and its generated part, with the same lines."""

    def blank(code: re.Match) -> str:
        return re.sub(r"[^\n]", " ", code.group())

    text = GENERATED.sub(blank, text)
    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.MULTILINE | re.DOTALL)
    # code in a line, links, and names with a slash or of easyconfigs
    return re.sub(r"`[^`]*`|\]\([^)]*\)|\S*/\S*|\S+\.eb\b", blank, text)


def prose(path: pathlib.Path) -> Iterator[Tuple[int, str, bool]]:
    """Lines, texts, and which of them are docstrings: of Python, the strings."""
    if path.suffix != ".py":
        yield 1, markdown(path.read_text()), False
        return
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
    }
    for node in ast.walk(tree):
        # a word alone is a name of something
        if isinstance(node, ast.Constant) and " " in str(node.value):
            text = re.sub(r"``[^`]*``", "", str(node.value))
            yield node.lineno, text, id(node) in docstrings


def mistakes(path: pathlib.Path, known: List[Rule]) -> List[str]:
    found = []
    for first, text, is_docstring in prose(path):
        for rule in known:
            if rule.phrase.startswith("^") and not is_docstring:
                continue
            if rule.phrase.startswith("*") and path.suffix == ".py":
                continue
            for match in rule.pattern.finditer(text):
                line = first + text[: match.start()].count("\n")
                place = f"{path.relative_to(ROOT)}:{line}"
                found.append(f"{place}: '{rule.phrase}': write {rule.better}")
    return found


def misspelled() -> str:
    # mxnet.nd, and gpg's field for a fingerprint
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list=nd,fpr"]
    command += map(str, files())
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


def test_words_are_spelled_right():
    assert not misspelled()


def test_phrases_read_well():
    known = rules()
    assert not [each for path in files() for each in mistakes(path, known)]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "It could not be\nhad.", ["a.md:1"]),
        ("a.md", "`be had`\n\n```\nbe had\n```\n\nIt uses OpenMPI.", ["a.md:7"]),
        ("a.md", "behaved openmpi", []),
        ("a.md", "x\n<!-- made by ./hvd docs -->\nbe had\n<!-- end -->\nbe had", ["a.md:5"]),
        ("a.yaml", "# What is asked for.", ["a.yaml:1"]),
        ("a.py", 'fail("asked for")', []),
        ("a.py", '"""Whether it is."""\nx = "Whether"', ["a.py:1"]),
        ("a.py", 'fail("cannot be had")', ["a.py:1"]),
    ],
)
def test_a_bad_phrase_is_found(tmp_path, monkeypatch, name, text, found):
    """So that the test before means something."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / name
    path.write_text(text)
    assert [line.rpartition(": '")[0] for line in mistakes(path, rules())] == found


if __name__ == "__main__":
    LINES = [*(each for path in files() for each in mistakes(path, rules())), misspelled()]
    print("\n".join(filter(None, LINES)))
    sys.exit(any(LINES))
