"""Generated parts of pages, and the page of the documents this project started from."""

from __future__ import annotations

import collections
import pathlib
from typing import Any, Dict, List

import yaml

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.report.text import render

#: The lines before and after the generated part of a page.
BEGIN = "<!-- made by ./hvd dev docs -->"
END = "<!-- end -->"
SEEDS = paths.ROOT / "docs" / "seeds.yaml"


def rewrite(path: pathlib.Path, marker: str, text: str, check: bool) -> List[pathlib.Path]:
    """Put ``text`` between the line ``marker`` and the next `END` of a file.

    Args:
        marker: empty for the whole file.
        check: write nothing, and fail if the file is stale.

    Returns:
        The file if it was written, or nothing.
    """
    before = path.read_text() if path.exists() else ""
    after = text
    if marker:
        head, found, rest = before.partition(marker)
        _, end, tail = rest.partition(END)
        if not found or not end:
            hint = f"add the two lines '{marker}' and '{END}' to it"
            raise HvdError(f"{paths.shorten(path)}: markers not found", hint)
        after = f"{head}{marker}\n{text}{END}{tail}"
    if after == before:
        return []
    if check:
        raise HvdError(f"{paths.shorten(path)} is stale", "./hvd dev docs")
    write_atomically(path, after.encode())
    return [path]


def load_seeds() -> List[Dict[str, Any]]:
    """Read the documents; the file's first lines describe their procedures."""
    return yaml.safe_load(SEEDS.read_text())["documents"]


def write_seeds(check: bool) -> List[pathlib.Path]:
    """Write the page of the documents; with ``check``, refuse a stale one."""
    documents = load_seeds()
    answers = collections.Counter(p["answer"] for each in documents for p in each["procedures"])
    text = render("docs/seeds.md.j2", documents=documents, answers=answers)
    return rewrite(SEEDS.with_suffix(".md"), "", text, check)
