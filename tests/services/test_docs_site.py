"""The documentation site: built without a warning, read without a network."""

from __future__ import annotations

import html.parser
import os
import pathlib
import sys
import urllib.parse

import pytest

from hvd.core import paths
from tests.checkout import run

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Sphinx needs Python 3.11")


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
def pages(tmp_path_factory):
    """The pages of the site, by file."""
    state = tmp_path_factory.mktemp("state")
    run([paths.ROOT / "hvd", "dev", "docs", "--site"], env={**os.environ, "HVD_STATE": str(state)})
    files = (state / "site").rglob("*.html")
    return {file: Links(file.read_text()) for file in files if "_downloads" not in file.parts}


def test_every_document_has_a_page(pages):
    site = min(pages, key=lambda file: len(file.parts)).parent
    docs = paths.ROOT / "docs"
    for document in [*docs.glob("*.md"), *docs.glob("sites/*.md")]:
        assert site / document.relative_to(docs).with_suffix(".html") in pages, document


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
