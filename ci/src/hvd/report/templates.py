"""Pages and tables in Markdown, rendered from Jinja templates.

A template lies beside the module that renders it and is named from ``ci/src/hvd``, such as
``docs/site.md.j2``.  It has functions of `hvd.report.text` as filters, and ``table``.
"""

from __future__ import annotations

from typing import Any

from hvd.core import templates
from hvd.report import text

_ENVIRONMENT = templates.environment()
_ENVIRONMENT.filters.update(
    cell=text.escape,
    code=text.code,
    fenced=text.fenced,
    duration=text.duration,
    size=text.size,
    figures=text.figures,
    plural=text.plural,
    bar=text.bar,
)
_ENVIRONMENT.globals["table"] = lambda *args, **options: "\n".join(text.table(*args, **options))


def render(template: str, **context: Any) -> str:
    """Render the template file ``template`` with ``context``; the text ends in one line break."""
    return _ENVIRONMENT.get_template(template).render(context).rstrip("\n") + "\n"
