"""The documentation as a site, made by Sphinx."""

from __future__ import annotations

import pathlib
import sys

from hvd.core import paths, process
from hvd.core.errors import HvdError

_TIMEOUT = 600


def build() -> pathlib.Path:
    """Build the site.

    Returns:
        Its first page.

    Raises:
        HvdError: a page has a mistake, such as a link that leads nowhere, or Python is too old.
    """
    if sys.version_info < (3, 11):
        raise HvdError(
            f"Sphinx's current releases need Python 3.11, and .venv has {sys.version.split()[0]}",
            "put a newer python3 first on PATH, and remove .venv",
        )
    target = paths.state() / "site"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-E", "-q"]
    log = paths.state() / "logs" / "docs.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    process.run([*command, paths.ROOT / "docs", target], log=log, timeout=_TIMEOUT)
    return target / "index.html"
