"""The documentation site: it is built without a warning, and needs no network to be read."""

from __future__ import annotations

import html.parser
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pytest

from hvd.core import paths
from tests.conftest import unmet


class Links(html.parser.HTMLParser):
    """What a page refers to, by tag, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.loaded, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places.add(found.get("id"))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and "stylesheet" in found.get("rel", ""):
            self.loaded.append(found["href"])


@pytest.fixture(scope="module")
def pages(request, tmp_path_factory):
    """The pages of the site, by file."""
    if sys.version_info < (3, 11):
        unmet(request.config, "services", "Sphinx needs Python 3.11")
    state = tmp_path_factory.mktemp("state")
    done = subprocess.run(
        [paths.ROOT / "hvd", "docs", "--site"],
        env={**os.environ, "HVD_STATE": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    files = (state / "site").rglob("*.html")
    return {file: Links(file.read_text()) for file in files if "_downloads" not in file.parts}


def test_every_document_has_a_page(pages):
    site = min(pages, key=lambda file: len(file.parts)).parent
    documents = [
        *(paths.ROOT / "docs").glob("*.md"),
        *(paths.ROOT / "docs" / "sites").glob("*.md"),
    ]
    for document in documents:
        page = site / document.relative_to(paths.ROOT / "docs").with_suffix(".html")
        assert page in pages, document


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(pages):
    for file, page in pages.items():
        for address in page.loaded:
            assert not urllib.parse.urlsplit(address).netloc, (file, address)
        for address in page.links:
            link = urllib.parse.urlsplit(address)
            if link.scheme or link.netloc:
                continue
            target = pathlib.Path(os.path.normpath(file.parent / urllib.parse.unquote(link.path)))
            target = target if link.path else file
            assert target.is_file(), (file, address)
            if link.fragment and target in pages:
                assert urllib.parse.unquote(link.fragment) in pages[target].places, (file, address)


def test_long_tables_can_be_filtered(pages):
    (matrix,) = [page for file, page in pages.items() if file.name == "support-matrix.html"]
    assert any("filter.js" in address for address in matrix.loaded)
