"""The site `local` with Slurm, as docs/on-site.md has somebody describe a machine of their own."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Dict, Iterator, Sequence

import yaml

from hvd.core import paths
from hvd.smoke import launch
from tests.checkout import Checkout

PAGE = paths.ROOT / "docs" / "on-site.md"
#: What two nodes on one machine need of Open MPI: it keeps off loopback where there is more.
ALLOWANCES = {**launch.small_machine(), "OMPI_MCA_btl_tcp_if_include": "lo"}


def described() -> Dict[str, Any]:
    """What the page has for `site.yaml`."""
    block = re.search(r"^```yaml\n(name: local\n.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert block, "the page has no site.yaml"
    return yaml.safe_load(block[1])


@contextlib.contextmanager
def local(checkout: Checkout, bandwidth: Sequence[Dict[str, Any]] = ()) -> Iterator[None]:
    """Let the site `local` of ``checkout`` be a cluster for the length of the block.

    Args:
        bandwidth: what is to be reached at least, as the site's file has it.
    """
    data = described()
    data["fabric"] = {"always": {"set": ALLOWANCES, "source": "own"}}
    data["environments"]["local-hvd"]["bandwidth"] = list(bandwidth)
    file = checkout.root / "environments" / "sites" / "local" / "site.yaml"
    before = file.read_text()
    file.write_text(yaml.safe_dump(data))
    try:
        yield
    finally:
        file.write_text(before)
