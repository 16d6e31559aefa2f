"""The documentation site: built without a warning, read without a network and in a browser."""

from __future__ import annotations

import functools
import html.parser
import http.server
import importlib
import os
import pathlib
import re
import shutil
import sys
import threading
import urllib.parse

import pytest

from hvd.core import paths
from tests import debian
from tests.checkout import run

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Sphinx needs Python 3.11")
#: Of a phone to a wide screen.
WIDTHS = (360, 390, 768, 1024, 1366, 1440, 1920)
#: Chooses every combination, and returns the line and the reason that the page shows for each.
CHOOSE_ALL = """() => {
  const form = document.getElementById("selector");
  const questions = [...form.querySelectorAll(".choices")].map((each) => [
    ...each.querySelectorAll("option, input"),
  ]);
  const shown = [];
  const choose = (place) => {
    if (place < questions.length) {
      for (const each of questions[place]) {
        each.selected = each.checked = true;
        choose(place + 1);
      }
      return;
    }
    form.dispatchEvent(new Event("change"));
    const line = form.querySelector("pre");
    const reason = document.getElementById("selector-reason").textContent;
    shown.push([line.textContent, !line.parentElement.hidden, reason]);
  };
  choose(0);
  return shown;
}"""


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
def site(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    run([paths.ROOT / "hvd", "dev", "docs", "--site"], env={**os.environ, "HVD_STATE": str(state)})
    return state / "site"


@pytest.fixture(scope="module")
def pages(site):
    """The pages of the site, by file."""
    files = [file for file in site.rglob("*.html") if "_downloads" not in file.parts]
    return {file: Links(file.read_text()) for file in files}


@pytest.fixture(scope="module")
def address(site):
    """Where the site is served: a page may read the clipboard there."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    """Chromium: this machine's, or Debian's."""
    playwright = pytest.importorskip("playwright.sync_api", reason="has no wheel for this machine")
    program, environment = shutil.which("chromium") or shutil.which("google-chrome"), {}
    if not program:
        root = debian.unpacked("chromium", "chromium-common", dependencies=True)
        program = root / "usr" / "lib" / "chromium" / "chromium"
        libraries = list((root / "usr" / "lib").glob("*-linux-gnu*"))
        libraries += [each / "pulseaudio" for each in libraries]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, libraries))
    with playwright.sync_playwright() as driver:
        # its sandbox refuses root
        started = driver.chromium.launch(
            executable_path=program, env={**os.environ, **environment}, chromium_sandbox=False
        )
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    """An empty page, and its errors, of which there must be none."""
    context = browser.new_context(base_url=address, permissions=["clipboard-read"])
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append((page.url, str(error))))
    page.on("console", lambda line: line.type == "error" and errors.append((page.url, line.text)))
    yield page
    context.close()
    assert not errors


def test_every_document_has_a_page(site, pages):
    sources = [*paths.ROOT.glob("*.md"), *paths.ROOT.glob("docs/**/*.md")]
    assert len(sources) > 40
    for document in [*sources, paths.ROOT / "examples" / "README.md"]:
        assert site / document.relative_to(paths.ROOT).with_suffix(".html") in pages, document
    assert site / "index.html" in pages


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


def test_no_page_is_wider_than_its_window(site, pages, page):
    """Nor has it an error, which is one of every test here."""
    wide = []
    # the first leads on to the start page
    for file in pages.keys() - {site / "index.html"}:
        page.goto(f"/{file.relative_to(site)}")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            # Furo hides the bar of a page that is too wide, but not what sticks out
            beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if beyond > 0:
                wide.append((file.name, width, beyond))
    assert not wide


def test_the_selector_says_what_the_recipe_says(page, monkeypatch):
    monkeypatch.syspath_prepend(paths.ROOT / "docs")
    selector = importlib.import_module("selector")
    page.goto("/docs/index.html")
    shown = page.evaluate(CHOOSE_ALL)
    found = list(selector.answers())
    assert {accepted for _, accepted, _ in found} == {True, False}
    for (line, visible, reason), (spec, accepted, why) in zip(shown, found, strict=True):
        assert (line, visible) == (f"spack install {spec}", accepted)
        assert reason == (why or "The recipe accepts it.")


def test_the_selector_is_used_with_the_keyboard(page):
    page.goto("/docs/index.html")
    page.get_by_label("Framework").focus()
    page.keyboard.type("TensorFlow")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    # the second choice, of oneCCL
    assert (
        page.get_by_role("status")
        .inner_text()
        .startswith("spack install py-horovod frameworks=tensorflow +ccl\n")
    )


def test_code_is_copied_without_prompts(page):
    page.goto("/README.html")
    block = page.locator(".highlight-console", has_text="spack repo add")
    assert "$ spack" in block.inner_text()
    block.hover()
    block.get_by_role("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "spack repo add" in copied and "$ " not in copied


def test_the_line_of_the_selector_is_copied(page):
    page.goto("/docs/index.html")
    page.get_by_label("Open MPI").check()
    page.locator("#selector .highlight").hover()
    page.locator("#selector").get_by_role("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "spack install py-horovod frameworks=pytorch ^openmpi"


@pytest.mark.parametrize(
    ("query", "title", "places"),
    [
        ("403", "Troubleshooting", 3),
        ("subset of ranks", "Troubleshooting", 3),
        ("install", "Install with your own Spack", 1),
        ("perlmutter", "Perlmutter", 1),
    ],
)
def test_search_finds_what_is_asked_for_in_the_first_places(page, query, title, places):
    page.goto(f"/search.html?q={urllib.parse.quote(query)}")
    page.locator("#search-results li").first.wait_for()
    found = page.locator("#search-results li > a").all_inner_texts()
    assert any(each.startswith(title) for each in found[:places])


def test_quotes_are_as_they_are_typed(pages):
    for file in pages:
        assert not set("“”‘’") & set(file.read_text()), file


def test_long_tables_can_be_filtered(page):
    page.goto("/docs/upstream.html")
    page.get_by_label("Filter").first.fill("zero-grad")
    rows = page.locator("article input + .table-wrapper").first.locator("tbody tr:visible")
    assert 0 < rows.count() < 5
    assert all("zero-grad" in each for each in rows.all_inner_texts())


def test_tables_are_sorted_by_the_column_that_is_clicked(page):
    """By amounts with their units, or as versions; rows that belong together stay."""

    def column(table, head, place):
        table.get_by_role("columnheader", name=head, exact=True).click()
        return table.locator(f"tbody td:nth-child({place})").all_inner_texts()

    page.goto("/docs/performance.html")
    builds = page.locator("#builds table")
    seconds = {"ms": 1e-3, "s": 1, "min": 60}
    found = [
        sum(float(number) * seconds[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))
        for text in column(builds, "Median", 3)
    ]
    assert found == sorted(found)
    ratios = [*map(float, column(builds, "Ratio to plain pip", 5))]
    assert ratios == sorted(ratios)
    page.keyboard.press("Enter")
    assert builds.locator("th[aria-sort=descending]").inner_text() == "Ratio to plain pip"
    page.goto("/docs/support-matrix.html")
    pythons = column(page.locator("#horovod-0-28-1-by-framework table"), "Python", 3)
    lows = [
        [int(part) for part in text.split()[0].strip(",").split(".")] for text in pythons if text
    ]
    assert lows == sorted(lows)
    assert not page.locator("#overview th[tabindex]").count()
