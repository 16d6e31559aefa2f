"""``./hvd dev docs``."""

from __future__ import annotations

import os
import shutil
import sys

from hvd.cli import reference
from hvd.cli.common import flag
from hvd.core import console, paths, process
from hvd.core.errors import HvdError
from hvd.docs import pages, site_page
from hvd.matrix import cells, page


def docs(
    check: bool = flag("--check", "Write nothing; fail if one is stale."),
    as_site: bool = flag("--site", "Build the documentation site; needs Python 3.11."),
) -> None:
    """Regenerate the README's table, and the pages that come from code, files and results."""
    # the pages are about this checkout's sites
    os.environ.pop("HVD_SITES", None)
    if as_site:
        _build_site()
        return
    written = site_page.write(check) + pages.write_seeds(check)
    written += reference.write(check) + page.write(cells.matrix(), check)
    for path in written:
        console.note(paths.shorten(path))


def _build_site() -> None:
    if sys.version_info < (3, 11):
        raise HvdError(
            f"Sphinx's current releases need Python 3.11, and .venv has {sys.version.split()[0]}",
            "put a newer python3 first on PATH, and remove .venv",
        )
    target, log = paths.state() / "site", paths.state() / "logs" / "docs.log"
    # a warning, such as a link that leads nowhere, is an error
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-E", "-q"]
    shutil.rmtree(target, ignore_errors=True)
    process.run([*words, "-c", paths.ROOT / "docs", paths.ROOT, target], log=log, timeout=600)
    console.note(paths.shorten(target / "index.html"))
