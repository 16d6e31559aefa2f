"""Pages and tables in Markdown, rendered from Jinja templates.

A template lies beside the module that renders it and is named from ``ci/src/hvd``, such as
``docs/site.md.j2``.  It has the filters

- ``cell``: any text, escaped so that Markdown shows just it, fit for a table cell;
- ``code``: the same as code within a line;
- ``fenced``: several lines as a code block;
- ``duration`` (seconds), ``size`` (bytes), ``figures`` (three digits) and ``plural("rank")``

and the function ``table(header, rows, right)`` of `hvd.report.text` for a table whose columns
depend on the data.
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
)
_ENVIRONMENT.globals["table"] = lambda *args, **options: "\n".join(text.table(*args, **options))


def render(template: str, **context: Any) -> str:
    """Render the template file ``template`` with ``context``; the text ends in one line break."""
    return _ENVIRONMENT.get_template(template).render(context).rstrip("\n") + "\n"
