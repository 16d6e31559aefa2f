"""``./hvd docs``."""

from __future__ import annotations

import os

from hvd.bench import page as performance_page
from hvd.cli.common import flag
from hvd.core import console, paths
from hvd.docs import seeds, site_page, sphinx
from hvd.matrix import definition, page


def docs(
    check: bool = flag("--check", "Write nothing; fail if one is stale."),
    as_site: bool = flag("--site", "Build the documentation site; needs Python 3.11."),
) -> None:
    """Regenerate the README's table, and the pages that come from files and results."""
    # the pages are about this checkout's sites
    os.environ.pop("HVD_SITES", None)
    if as_site:
        console.note(paths.shorten(sphinx.build()))
        return
    written = site_page.write(check) + seeds.write(check) + page.write(definition.matrix(), check)
    for path in written + performance_page.write(check):
        console.note(paths.shorten(path))
