"""Jinja templates of the files that are written for users."""

from __future__ import annotations

import functools
import shlex
from typing import Callable

import jinja2

from hvd.core import templates


def render(name: str, quote: Callable[[str], str] = shlex.quote, /, **values: object) -> str:
    """Fill in the template ``name``, a path from ``ci/src/hvd``, with ``values``.

    Args:
        quote: writes a string as a literal of the file's language; the filter ``quote``.
    """
    return _environment(quote).get_template(name).render(values)


@functools.lru_cache(None)
def _environment(quote: Callable[[str], str]) -> jinja2.Environment:
    environment = templates.environment()
    environment.filters["quote"] = quote
    return environment
