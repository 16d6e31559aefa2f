"""The pages of the sites and the README's table of environments: made of what the files say."""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import Dict, List, Mapping, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.launch import batch
from hvd.launch.request import Request
from hvd.model import environment, site
from hvd.model.site import Site
from hvd.report.text import Markdown, escape, table
from hvd.solve import dag_table, site_check

#: What stands before and behind the part of a file that is made.
BEGIN = "<!-- made by ./hvd docs -->"
END = "<!-- end -->"
README = paths.ROOT / "README.md"
PAGES = paths.ROOT / "docs" / "sites"
#: The site of any machine, which has no page.
LOCAL = "local"

_MPIS = ("cray-mpich", "spectrum-mpi", "openmpi", "mpich", "intel-mpi", "intel-oneapi-mpi")
_FRAMEWORKS = {"py-torch": "PyTorch", "py-tensorflow": "TensorFlow"}


def files() -> Dict[pathlib.Path, str]:
    """Every file with a part that is made, with its whole content as it should be.

    Raises:
        HvdError: a file has no place for that part.
    """
    pages = {PAGES / f"{name}.md": page(site.load(name)) for name in _names()}
    made = {README: environments(), **pages}
    return {path: put(path, text) for path, text in made.items()}


def write(check: bool) -> List[pathlib.Path]:
    """Write what is not as it should be, or with ``check`` refuse it.

    Returns:
        The files that were written.

    Raises:
        HvdError: with ``check``, a file is not up to date.
    """
    made = files().items()
    stale = {path: text.encode() for path, text in made if path.read_text() != text}
    return bring_up_to_date(stale, check, "the environments say", "./hvd docs")


def bring_up_to_date(
    stale: Mapping[pathlib.Path, bytes], check: bool, source: str, command: str
) -> List[pathlib.Path]:
    """Write files that are not as they should be, or with ``check`` refuse them.

    Args:
        stale: the files, and what they should be.
        check: write nothing.
        source: what they are made of, and "say" or "says".
        command: what makes them.

    Raises:
        HvdError: with ``check``, there is one.
    """
    if stale and check:
        shown = ", ".join(paths.shorten(path) for path in stale)
        raise HvdError(f"not what {source}: {shown}", command)
    for path, content in stale.items():
        write_atomically(path, content)
    return list(stale)


def environments() -> str:
    """The README's table."""
    rows = [_row(name) for name in environment.names()]
    return "\n".join(table(["Environment", "Machine", "MPI", "Frameworks", "GPU", "State"], rows))


def page(machine: Site) -> str:
    """The part of a site's page that is made."""
    status = machine.status
    state = f"{status.state} since {status.since}" if status.since else status.state
    moved = [f"[{name}]({name}.md)" for name in status.successors]
    lines = [f"{machine.center}; {state}{'; now ' if moved else ''}{', '.join(moved)}.", ""]
    lines += ["## Nodes", "", *_nodes(machine)]
    lines += ["## What the site provides", "", *_provided(machine)]
    for name in machine.environments:
        lines += [f"## `{name}`", "", *_commands(machine, name)]
    if machine.pitfalls:
        lines += ["## Pitfalls", ""]
        lines += [f"- {escape(p.text)} ({escape('; '.join(p.source))})" for p in machine.pitfalls]
        lines += [""]
    lines += ["## Sources", "", *(f"- {escape(text)}" for text in machine.sources.values())]
    return "\n".join(lines) + "\n"


def _names() -> List[str]:
    return [name for name in site.names() if name != LOCAL]


def put(path: pathlib.Path, made: str, begin: str = BEGIN) -> str:
    """The content of the file ``path`` with ``made`` in its place, between ``begin`` and `END`.

    Raises:
        HvdError: the file has no such place.
    """
    text = path.read_text() if path.exists() else ""
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise HvdError(
            f"{paths.shorten(path)} has no place for what is made",
            f"add the two lines '{begin}' and '{END}' to it",
        )
    return f"{before}{begin}\n{made}{END}{after}"


def _row(name: str) -> Tuple[object, ...]:
    chosen = environment.load(name)
    machine = site.of(name)
    use = machine.environments[name]
    if not chosen.site:
        link = f"`{name}`"
        gpu, where = "–", "any Linux machine"
        return Markdown(link), where, "the machine's", ", ".join(chosen.frameworks), gpu, "live"
    versions = _versions(chosen)
    mpi = [f"{package} {versions[package]}" for package in _MPIS if package in versions]
    frameworks = [f"{_FRAMEWORKS[p]} {versions[p]}" for p in _FRAMEWORKS if p in versions]
    gpu = machine.partitions[use.partition].gpu
    operations = "" if use.operations == "cpu" else f", {use.operations.upper()}"
    return (
        Markdown(f"[`{name}`](docs/sites/{machine.name}.md)"),
        f"{machine.center} {machine.name}",
        ", ".join(mpi),
        ", ".join(frameworks),
        f"{gpu}{operations}" if gpu else "–",
        machine.status.state,
    )


def _versions(chosen: environment.Environment) -> Dict[str, str]:
    """Package to version, from the solution that is kept."""
    text = dag_table.file(chosen).read_text()
    return dict(re.findall(r"^\| ([a-z][\w-]*) \| (\S+) \|", text, re.MULTILINE))


def _nodes(machine: Site) -> List[str]:
    rows = [
        (
            p.name,
            f"{p.gpus} {p.gpu}" if p.gpus else "–",
            p.cores or "",
            f"{p.memory_gb} GB" if p.memory_gb else "",
        )
        for p in machine.partitions.values()
    ]
    return table(["Partition", "GPUs", "Cores", "Memory"], rows)


def _provided(machine: Site) -> List[str]:
    rows = [
        (package, version, prefix, " ".join(modules))
        for package, externals in site_check.externals(site_check.file(machine.name)).items()
        for version, prefix, modules in externals
    ]
    return table(["Package", "Version", "Prefix", "Modules"], rows)


def _commands(machine: Site, name: str) -> List[str]:
    """From a login node to two ranks on two nodes."""
    use = machine.environments[name]
    partition = machine.partitions[use.partition]
    request = Request(machine, name, partition, 2, 1, machine.launcher, time="0:10:00")
    chosen = environment.load(name)
    spec = next(text for text in chosen.specs if text.startswith(environment.HOROVOD))
    framework = "torch" if "pytorch" in chosen.frameworks else "tensorflow"
    program = f"python packages/py_horovod/test/allreduce.py {framework}"
    shape = "--nodes 2 --ranks-per-node 1"
    lines = [f"    {spec}", "", "[What it becomes](../../environments/" + name + "/dag.md).", ""]
    lines += ["```console"]
    lines += [f"$ module load {' '.join(load)}" for load in use.build]
    lines += [f"$ ./hvd build {name}"]
    if machine.interactive and machine.interactive.gpus:
        lines += [f"$ {batch.allocation(request)}"]
        lines += [f"$ . {shlex.quote('.hvd/setup-env.sh')}; spack env activate {name}"]
        lines += [f"$ ./hvd launch {name} {shape} --run -- {program}"]
    else:
        lines += [f"$ ./hvd launch {name} {shape} --time 0:10:00 --batch -- {program} > job.sh"]
        lines += [f"$ {'bsub' if machine.scheduler == 'lsf' else 'sbatch'} job.sh"]
    return [*lines, "```", ""]
