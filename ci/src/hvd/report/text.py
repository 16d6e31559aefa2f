"""Pages in Markdown: durations, sizes, tables, and text from elsewhere shown as it is."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any, Container, Iterable, List, Sequence
from urllib.parse import quote

from hvd.core import templates

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")
# What XML 1.0 cannot hold, not even as a character reference.
_UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# An underscore within a word is not markup, and file names are full of them.
_MARKUP = re.compile(r"[\\`*\[<|~&]|(?<![^\W_])_|_(?![^\W_])")


def plain(value: object) -> str:
    """Return ``value`` as text without terminal escapes and control characters."""
    text = _ESCAPE_SEQUENCE.sub("", str(value)).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


class Markdown(str):
    """One line of text that is Markdown already; `escape` leaves it alone."""


def escape(value: object) -> Markdown:
    """Return ``value`` as one line of Markdown that shows just it, fit for a table cell."""
    if isinstance(value, Markdown):
        return value
    lines = [line.strip() for line in plain(value).strip().splitlines()]
    return Markdown("<br>".join(_MARKUP.sub(r"\\\g<0>", line) for line in lines if line))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], right: Container[str] = ()
) -> List[str]:
    """Return the lines of a Markdown table, and an empty line.

    Cells and titles are escaped unless they are `Markdown`; the columns whose titles are in
    ``right`` are aligned to the right.
    """
    rule = [Markdown("---:" if title in right else ":---") for title in header]
    cells = [[escape(cell) for cell in row] for row in [header, rule, *rows]]
    return [*("| " + " | ".join(row) + " |" for row in cells), ""]


def fenced(text: str) -> Markdown:
    """Return a code block that holds ``text``, whatever backticks are in it."""
    text = plain(text).rstrip("\n")
    fence = max(["``", *re.findall("`{3,}", text)], key=len) + "`"
    return Markdown(f"{fence}text\n{text}\n{fence}")


def code(text: str) -> Markdown:
    """Return ``text`` as code within a line; only escaped if it has backticks of its own."""
    text = " ".join(plain(text).split())
    return escape(text) if "`" in text else Markdown(f"`{text}`")


def link(path: object, directory: pathlib.Path, text: str = "") -> Markdown:
    """Return a Markdown link to ``path``, as seen from a page in ``directory``.

    Logs and reports below one directory, such as ``.hvd/logs/local-hvd`` and
    ``.hvd/reports/local-hvd``, are near: links between them work in an archive of both.
    """
    base = os.path.abspath(directory)
    target = os.path.join(base, path)
    common = os.path.dirname(os.path.dirname(base))
    if common != os.sep and os.path.commonpath([common, target]) == common:
        target = os.path.relpath(target, base)
    return Markdown(f"[{escape(text or target)}]({quote(target)})")


def bar(value: float, most: float) -> str:
    """Return a bar as long as ``value`` is of ``most``."""
    return "█" * round(20 * value / most) if most else ""


def duration(seconds: float) -> str:
    """Return ``seconds`` in a fitting unit, such as ``85.0 µs``, ``1.20 s`` or ``12 min 03 s``."""
    if seconds < 59.95:
        for unit, factor in (("µs", 1e6), ("ms", 1e3)):
            if seconds * factor < 999.5:
                return f"{figures(seconds * factor)} {unit}"
        return f"{figures(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def figures(number: float) -> str:
    """Return a positive ``number`` with three significant digits, or all before the point."""
    if number == 0 or number >= 999.5:
        return f"{number:.0f}"
    return f"{number:#.3g}".rstrip(".")


def size(count: float) -> str:
    """Return ``count`` bytes with a binary unit, such as ``64 B`` or ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def plural(count: int, noun: str) -> str:
    """Return ``count`` and ``noun``, such as ``1 check`` or ``2 checks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def render(template: str, **context: Any) -> str:
    """Render a template of Jinja with ``context``; the text ends in one line break.

    A template lies beside the module that renders it and is named from ``ci/src/hvd``, such as
    ``docs/site.md.j2``.  It has `escape` as the filter ``cell``, and the other functions above.
    """
    jinja = templates.environment()
    own = (code, fenced, duration, size, figures, plural, bar)
    jinja.filters.update({each.__name__: each for each in own}, cell=escape)
    jinja.globals["table"] = lambda *args, **options: "\n".join(table(*args, **options))
    return jinja.get_template(template).render(context).rstrip("\n") + "\n"
