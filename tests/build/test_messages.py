"""What docs/troubleshooting.md and docs/variables.md quote is in Horovod's patched sources."""

from __future__ import annotations

import re

import pytest

from hvd.core import paths

DOCS = paths.ROOT / "docs"
#: Headings that quote PyTorch, MPI, older Horovods, or nobody.
OTHERS = re.compile(
    "DataLoader|libtorch_cuda|There are not enough slots|Data unpack|plm_rsh_agent|"
    "was set to a path|invalid device ordinal|Caught signal|address [(]nil|terminate called|"
    "incompatible function|None$|hvd[.]local_rank|Gradients were computed|Tensor is required"
)


@pytest.fixture(scope="module")
def text(shared_tree):
    """Horovod's sources and Gloo's, with strings that are split over lines in one piece."""
    tree = shared_tree("0.28.1", "+mpi+gloo~cuda~rocm frameworks=pytorch,tensorflow")
    files = [*(tree / "horovod").rglob("*"), *(tree / "third_party/gloo/gloo").rglob("*")]
    sources = [file.read_text() for file in files if file.suffix in (".py", ".cc", ".h")]
    joined = re.sub(r"""(["'])\s*(?:<<\s*)?f?\1""", "", "\n".join(sources))
    return re.sub(r"\s+", " ", joined)


def test_messages_are_those_of_the_sources(text):
    page = (DOCS / "troubleshooting.md").read_text()
    quoted = re.findall(r"`([^`]+)`", "\n".join(re.findall("^### .*", page, re.MULTILINE)))
    quoted = [message for message in quoted if not OTHERS.search(message)]
    assert len(quoted) > 20
    # the status is that of an answer
    parts = [part.strip() for message in quoted for part in re.split("[.]{3}|403", message)]
    assert [part for part in parts if part not in text] == []


def test_variables_are_those_of_the_sources(text):
    page = (DOCS / "variables.md").read_text().partition("## Horovod")[2]
    names = set(re.findall(r"\bHOROVOD_\w+", page))
    assert len(names) > 12
    assert [name for name in sorted(names) if name not in text] == []
