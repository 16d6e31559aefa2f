"""Keep results, and make docs/performance.md and its pictures from them."""

import json
import math
import pathlib
import statistics
import time

import jinja2
import yaml

from hvd.host import machine
from hvd.report import text

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
PARTS = ("builds", "solves", "collectives", "starts")
PICTURES = PARTS[:3]
BEGIN, END = "<!-- made by benchmarks/page.py -->\n", "<!-- end -->\n"
#: The columns that are results; the others say what a row is of.
MEASURED = {"median", "minimum", "maximum", "p95", "calls", "bus", "installed", "spec"}


def seconds(work, *arguments, **options):
    """Call ``work``; return its wall time."""
    begin = time.monotonic()
    work(*arguments, **options)
    return time.monotonic() - begin


def spread(times):
    """Times as columns: the median and the ends."""
    return {"median": statistics.median(times), "minimum": min(times), "maximum": max(times)}


def file(name):
    return HERE / "results" / f"{name}.json"


def save(name, rows, versions):
    """Write the results of a part: when, where and of what they are, and a line for each row."""
    host = machine.describe()
    about = f"{time.strftime('%Y-%m-%d')}, {host['os']}, {host['cpu']}, {host['cores']} cores"
    about += f", {text.size(host['memory'])}; {', '.join(map(' '.join, versions.items()))}"
    for row in rows:
        row.update({k: float(f"{v:.4g}") for k, v in row.items() if isinstance(v, float)})
    lines = ",\n ".join(map(json.dumps, rows))
    file(name).write_text(f'{{"about": {json.dumps(about)}, "rows": [\n {lines}\n]}}\n')


def other(rows, row, **values):
    """The row that has some other ``values``, but otherwise is of the same as ``row``; or None."""
    wanted = {**{k: v for k, v in row.items() if k not in MEASURED}, **values}
    return next((each for each in rows if wanted.items() <= each.items()), None)


def measured(goal, parts):
    """The ratio of a goal: the worst of those of all its rows."""
    rows, value = parts[goal["part"]]["rows"], goal.get("value", "median")
    wanted = {k: v if isinstance(v, list) else [v] for k, v in goal["of"].items()}
    ours = [row for row in rows if all(row.get(k) in v for k, v in wanted.items())]
    return max(row[value] / other(rows, row, **goal["to"])[value] for row in ours)


def write(check):
    """Write the page and its pictures, unless with ``check``; return those that were stale."""
    parts = {name: json.loads(file(name).read_text()) for name in PARTS}
    loader = jinja2.FileSystemLoader(HERE)
    templates = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    templates.filters.update(duration=text.duration, size=text.size, figures=text.figures)
    templates.filters["log"] = math.log10
    templates.filters["ratio"] = lambda value: f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    templates.globals.update(other=other, parts=parts)
    goals = [(g, measured(g, parts)) for g in yaml.safe_load((HERE / "goals.yaml").read_text())]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    made = templates.get_template("page.md.j2").render(goals=goals)
    files = {PAGE: f"{before}{BEGIN}{made}{END}{rest.partition(END)[2]}"}
    for name in PICTURES:
        picture = templates.get_template("picture.svg.j2").render(name=name)
        files[PAGE.with_name(f"performance-{name}.svg")] = picture
    stale = [path for path, made in files.items() if not path.exists() or path.read_text() != made]
    for path in stale if not check else ():
        path.write_text(files[path])
    return stale
