"""Where Jinja finds the tool's templates, and how it reads them."""

from __future__ import annotations

import shlex

import jinja2

from hvd.core import paths


def environment() -> jinja2.Environment:
    """Return a Jinja environment: templates are named from ``ci/src/hvd``, a missing value raises.

    Its filter ``quote`` makes a word of shell.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.SOURCE / "hvd"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["quote"] = shlex.quote
    return made
