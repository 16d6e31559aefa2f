"""The page that compares the documents this project began with to what it does."""

from __future__ import annotations

import collections
import pathlib
from typing import Any, Dict, List

import yaml

from hvd.core import paths
from hvd.docs.site_page import bring_up_to_date
from hvd.report import templates

SOURCE = paths.ROOT / "docs" / "seeds.yaml"
PAGE = paths.ROOT / "docs" / "seeds.md"


def load() -> List[Dict[str, Any]]:
    """Read the documents; the file's first lines describe their procedures."""
    return yaml.safe_load(SOURCE.read_text())["documents"]


def write(check: bool) -> List[pathlib.Path]:
    """Write the page, or with ``check`` refuse a stale one; return what was written.

    Raises:
        HvdError: with ``check``, it is out of date.
    """
    documents = load()
    answers = collections.Counter(p["answer"] for each in documents for p in each["procedures"])
    text = templates.render("docs/seeds.md.j2", documents=documents, answers=answers)
    stale = {} if PAGE.exists() and PAGE.read_text() == text else {PAGE: text.encode()}
    return bring_up_to_date(stale, check, "docs/seeds.yaml says", "./hvd docs")
