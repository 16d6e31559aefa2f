"""Jinja templates of the files that are written for users."""

from __future__ import annotations

import functools
import pathlib
import shlex
from typing import Callable

import jinja2


def render(file: pathlib.Path, quote: Callable[[str], str] = shlex.quote, **values: object) -> str:
    """Fill in the template ``file`` with ``values``.

    Args:
        quote: writes a string as a literal of the file's language; the filter ``quote``.
    """
    return _environment(file.parent, quote).get_template(file.name).render(values)


@functools.lru_cache(None)
def _environment(directory: pathlib.Path, quote: Callable[[str], str]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directory),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = quote
    return environment
