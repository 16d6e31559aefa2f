"""The documentation site: built without a warning, read without a network, and its form."""

from __future__ import annotations

import dataclasses
import html
import html.parser
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import recipe, specs
from tests import debian
from tests.checkout import run
from tests.constraints import CASES

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Sphinx needs Python 3.11")

HOROVOD = recipe.load("py-horovod")
#: Choices in the form, as its address has them, and the spec that they mean.
CHOICES = {
    "": "",
    "gloo=0": "~gloo",
    "mpi-controller=0": "~mpi",
    "mpi-controller=0&gloo=0": "~mpi~gloo",
    "horovod=0.18.2": "@0.18.2",
    "horovod=0.23.0&pytorch=2.0": "@0.23.0 ^py-torch@2.0",
    "pytorch=1.2": "^py-torch@1.2",
    "pytorch=2.16": "^py-torch@2.16",
    "pytorch=2.14&compiler=gcc@10": "%gcc@10 ^py-torch@2.14",
    "pytorch=2.14&compiler=llvm@19": "%llvm@19 ^py-torch@2.14",
    "frameworks=tensorflow&tensorflow=2.15": "frameworks=tensorflow ^py-tensorflow@2.15",
    "horovod=0.27.0&frameworks=tensorflow,pytorch&tensorflow=2.14": (
        "@0.27.0 frameworks=tensorflow,pytorch ^py-tensorflow@2.14"
    ),
    "horovod=0.28.0&frameworks=keras&keras=3": "@0.28.0 frameworks=keras ^py-keras@3",
    "frameworks=mxnet&mxnet=2.0": "frameworks=mxnet ^mxnet@2.0",
    "gloo=0&frameworks=ray": "~gloo frameworks=ray",
    "frameworks=pytorch,spark&spark=3.5": "frameworks=pytorch,spark ^py-pyspark@3.5",
    "gpu=cuda": "+cuda",
    "gpu=cuda&cuda_arch=80": "+cuda cuda_arch=80",
    "horovod=0.24.3&gpu=cuda&cuda_arch=90a": "@0.24.3 +cuda cuda_arch=90a",
    "horovod=0.22.1&gpu=cuda&cuda_arch=80&cuda=12": "@0.22.1 +cuda cuda_arch=80 ^cuda@12",
    "gpu=cuda&cuda_arch=80&nccl=2.8.3": "+cuda cuda_arch=80 ^nccl@2.8.3",
    "gpu=rocm&amdgpu_target=gfx90a&hip=6": "+rocm amdgpu_target=gfx90a ^hip@6",
    "gpu=rocm&amdgpu_target=gfx90a&hip=5.7": "+rocm amdgpu_target=gfx90a ^hip@5.7",
    "gpu=cuda&cuda_arch=80&operations=gpu-mpi&mpi=openmpi": (
        "+cuda cuda_arch=80 gpu_ops=mpi ^openmpi"
    ),
    "gpu=cuda&cuda_arch=80&operations=gpu-mpi&mpi=openmpi&mpi-version=4.1&mpi-gpu=%2Bcuda": (
        "+cuda cuda_arch=80 gpu_ops=mpi ^openmpi@4.1+cuda"
    ),
    "operations=nccl": "+nccl",
    "operations=ccl": "+ccl",
    "horovod=0.21.0&operations=ccl": "@0.21.0 +ccl",
    "gpu=cuda&cuda_arch=70&operations=ddl&mpi=spectrum-mpi&target=power9le": (
        "+cuda cuda_arch=70 +ddl~nccl target=power9le ^spectrum-mpi"
    ),
    "gpu=cuda&cuda_arch=70&operations=ddl&mpi=openmpi&target=zen3": (
        "+cuda cuda_arch=70 +ddl~nccl target=zen3 ^openmpi"
    ),
    "mpi=openmpi&mpi-version=3.1.3": "^openmpi@3.1.3",
    "mpi=mpich&mpi-version=4:": "^mpich@4:",
    # MPI cannot be chosen without its controller
    "mpi-controller=0&mpi=openmpi&mpi-version=3.1.3": "~mpi",
    "horovod=0.23.0&python=3.12": "@0.23.0 ^python@3.12",
    "more=nccl_link=static&gpu=cuda&cuda_arch=80": "+cuda cuda_arch=80 nccl_link=static",
    "more=@1.0": "@1.0",
}


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
    run([paths.ROOT / "hvd", "docs", "--site"], env={**os.environ, "HVD_STATE": str(state)})
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


#: Runs in the page: evaluates specs, and makes the form's choices one after the other.
SCRIPT = """
addEventListener("load", async () => {
  const data = document.getElementById("which-recipe").textContent;
  const recipe = new hvdSpec.Recipe(JSON.parse(data));
  const specs = SPECS.map((text) => {
    const { spec, messages } = recipe.check(hvdSpec.parse(text));
    return { spec: spec && hvdSpec.format(spec), messages };
  });
  const form = document.getElementById("which-spec");
  const seen = () => ({
    line: document.getElementById("which-line").textContent,
    verdict: document.getElementById("which-result").dataset.verdict,
    messages: [...document.querySelectorAll("#which-messages li")].map((each) => each.textContent),
  });
  const forms = [];
  for (const choice of CHOICES) {
    if (choice || location.hash) {
      const loaded = new Promise((done) => addEventListener("hashchange", done, { once: true }));
      location.hash = choice;
      await loaded;
    }
    forms.push(seen());
  }
  form.elements.horovod.value = "0.25.0";
  form.elements.more.value = "x='$(id)";
  form.elements.more.dispatchEvent(new Event("input", { bubbles: true }));
  const unlabelled = [...form.elements].filter((each) => each.name && !each.labels.length).length;
  const result = { specs, forms, address: location.hash, typed: seen(), unlabelled };
  document.body.innerHTML = "<pre id=result></pre>";
  document.getElementById("result").textContent = JSON.stringify(result);
});
"""


@pytest.fixture(scope="module")
def evaluated(pages, tmp_path_factory):
    """What the page says, in a browser, to the specs of `CASES` and to `CHOICES`."""
    chromium, environment = browser()
    (page,) = [file for file in pages if file.name == "which-spec.html"]
    script = SCRIPT.replace("SPECS", json.dumps(texts())).replace(
        "CHOICES", json.dumps([*CHOICES])
    )
    copy = page.with_name("which-spec-tried.html")
    copy.write_text(page.read_text() + f"<script>{script}</script>")
    profile = tmp_path_factory.mktemp("chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    done = subprocess.run(
        [chromium, *options, "--virtual-time-budget=60000", "--dump-dom", copy.as_uri()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr
    return json.loads(html.unescape(result.group(1)))


def browser():
    """Chromium and its environment: the system's, or Debian's in the user's cache."""
    installed = shutil.which("chromium") or shutil.which("google-chrome")
    if installed:
        return installed, os.environ
    root = debian.unpacked("chromium", "chromium-common", dependencies=True)
    # libpulse finds its other half by a path from the root
    folders = ("*-linux-gnu*", "*-linux-gnu*/pulseaudio")
    libraries = [str(path) for each in folders for path in (root / "usr" / "lib").glob(each)]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    return root / "usr" / "lib" / "chromium" / "chromium", environment


def texts():
    return [f"py-horovod {text}" for case in CASES for text in (case.refused, case.taken)]


def assert_same_verdict(text, messages):
    """The page's ``messages`` against a spec are those of `Recipe.refuse`."""
    said = ""
    try:
        HOROVOD.refuse(specs.parse(text))
    except HvdError as error:
        said = error.message
    own = {each.keywords["msg"] for each in HOROVOD.directives if "msg" in each.keywords}
    assert bool(messages) is bool(said), (text, messages, said)
    assert {each for each in own if each in said} == own & set(messages), text


def test_the_page_refuses_what_the_recipe_refuses(evaluated):
    for text, found in zip(texts(), evaluated["specs"]):
        assert_same_verdict(text, found.get("messages", []))
        if "spec" in found:
            taken = specs.parse(found["spec"])
            asked = dataclasses.replace(specs.parse(text), versions=taken.versions)
            assert HOROVOD.complete(asked) == taken, text


@pytest.mark.parametrize("choice", CHOICES)
def test_the_form_composes_the_spec_and_shows_its_refusal(evaluated, choice):
    found = evaluated["forms"][list(CHOICES).index(choice)]
    spack, install, text = shlex.split(found["line"])
    assert (spack, install) == ("spack", "install")
    assert specs.parse(text) == specs.parse(f"py-horovod {CHOICES[choice]}")
    assert found["verdict"] == ("refused" if found["messages"] else "taken")
    assert_same_verdict(text, found["messages"])


def test_the_form_keeps_its_state_in_the_address_and_quotes_for_the_shell(evaluated):
    state = urllib.parse.parse_qs(evaluated["address"].lstrip("#"))
    assert state["horovod"] == ["0.25.0"] and state["more"] == ["x='$(id)"]
    assert shlex.split(evaluated["typed"]["line"])[2] == "py-horovod@0.25.0 x='$(id)"


def test_every_field_of_the_form_has_a_label(evaluated):
    assert evaluated["unlabelled"] == 0
