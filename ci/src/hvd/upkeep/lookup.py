"""Look up newer releases of what is pinned, and say what would change."""

from __future__ import annotations

import pathlib
import platform
import re
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import yaml
from packaging.version import Version

from hvd.core import paths
from hvd.fetch import clone, python_index
from hvd.matrix import definition
from hvd.matrix.definition import PIP, Cell, Matrix
from hvd.matrix.plan import Planned
from hvd.model import recipe, versions
from hvd.model.environment import HOROVOD
from hvd.model.versions import VERSIONS, Pair, pinned
from hvd.upkeep import bound, newest, pins
from hvd.upkeep.newest import Releases
from hvd.upkeep.pins import Pin
from hvd.upkeep.proposal import Change, Proposal

#: A pin, its checksums, and the comment of uv that says what asks for it.
_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+).*\n(?:    .*\n)+", re.MULTILINE)
#: The repositories as users know them.
_NAMES = {"packages": "spack-packages", "spack": "spack"}
#: The tags of releases by repository; other tags of Spack's packages are of stacks.
_TAGS = {
    "packages": re.compile(r"refs/tags/(v\d{4}\.\d{2}\.\d+)"),
    "spack": re.compile(r"refs/tags/(v\d+\.\d+\.\d+)"),
}


class Lookup:
    """Newer releases for a support matrix; each distribution is looked up once.

    Args:
        planned: the cells that can be tried on this machine are among them.
    """

    def __init__(self, matrix: Matrix, planned: Sequence[Planned]) -> None:
        self.matrix = matrix
        self._cells = [each.cell for each in planned if each.action == "try"]
        self._known: Dict[str, Releases] = {}

    def releases(self, name: str) -> Releases:
        if name not in self._known:
            self._known[name] = newest.releases(python_index.files(name))
        return self._known[name]

    def distributions(self) -> List[Proposal]:
        """Newer releases within the series that are pinned, and newer series.

        Raises:
            HvdError: an index cannot be reached.
        """
        together: Dict[Tuple[str, str], List[Pin]] = {}
        kinds: Dict[Tuple[str, str], List[Pin]] = {}
        for pin in pins.load(self.matrix):
            together.setdefault((pins.package(pin.name), pin.version), []).append(pin)
            if pin.main and pin.machine == "x86_64":
                kinds.setdefault((pin.axis, pins.kind(pin.values[0])), []).append(pin)
        found = [*map(self._update, together.values()), *map(self._new_series, kinds.values())]
        return [each for each in found if each]

    def _update(self, together: List[Pin]) -> Optional[Proposal]:
        """Return the newest release that can take the place of all these pins."""
        first = together[0]
        version = min(map(self._newest, together))
        if version <= Version(first.version):
            return None
        changes = tuple(_replaced(pin, str(version)) for pin in together)
        cells: Dict[str, None] = {}
        for pin in together:
            cells.update(dict.fromkeys(self._cells_with(pin.axis, pin.values, pin.pythons)))
        return Proposal(first.name, first.version, str(version), changes, tuple(cells))

    def _newest(self, pin: Pin) -> Version:
        known, pinned_version = self.releases(pin.name), Version(pin.version)
        # Pythons that the pinned release has been given up for are no loss
        pythons = newest.supported(known.get(pinned_version, ()), pin.pythons, pin.machine)
        best = newest.newest(known, pythons or pin.pythons, pin.machine, pin.series)
        return best or pinned_version

    def _new_series(self, kind: List[Pin]) -> Optional[Proposal]:
        """Return the newest release if it is later than every series of its kind."""
        last = max(kind, key=lambda pin: Version(pin.version))
        known, axis = self.releases(last.name), last.axis
        version = newest.newest(known, [self.matrix.axes["python"][0]], last.machine)
        if not version or version < Version(last.version):
            return None
        if any(newest.within(str(version), pin.series) for pin in kind):
            return None
        series = ".".join(str(version).split(".")[: last.series.count(".") + 1])
        value = f"{pins.kind(last.values[0])}-{series}"
        line = _last_line(definition.FILE, "axes", axis, last.values[0])
        text = f"    {value}: {_flow(self._entry(last, version))}"
        changes = [Change.insertion(definition.FILE, line, text), _must({axis: value})]
        note = ""
        package = pins.package(last.name)
        refused = bound.refused_from(package, str(version)) if axis == "framework" else ""
        if refused:
            raised = bound.raised(package, refused, str(version))
            changes += raised or []
            note = "The recipe's bound is raised; the README and the support matrix have it too."
            if raised is None:
                note = f"The recipe refuses {package}@{refused}:, and its bound is raised by hand."
        cells = (self._default(**{axis: value}),)
        return Proposal(last.name, last.version, str(version), tuple(changes), cells, note)

    def _entry(self, last: Pin, version: Version) -> Dict[str, object]:
        """Return what the axis says of the value for ``version``, like that of the last one."""
        requirement = f"{last.name}=={version}"
        if last.axis != "framework":
            choice = self.matrix.choices[last.axis][last.values[0]]
            package = {"package": choice.package} if choice.package else {}
            return {**package, "requirement": requirement}
        before = self.matrix.frameworks[last.values[0]]
        known = self.releases(last.name)
        pythons = newest.supported(known[version], _pythons(self.matrix), last.machine)
        others = [text for text in before.requirements if not text.startswith(f"{last.name}==")]
        if others:
            # they stay with the Pythons that they are for
            pythons = [python for python in pythons if python in before.python]
        major, minor = pythons[-1].split(".")
        entry: Dict[str, object] = {
            "frameworks": list(before.frameworks),
            "python": f">={pythons[0]},<{major}.{int(minor) + 1}",
            "requirements": [requirement, *others],
        }
        for_cpus = {each.public for each in known if (each.local or "").startswith("cpu")}
        if before.cuda is not None and version.public not in for_cpus:
            entry["cuda"] = f">={pythons[0]}"
        return entry

    def horovod(self) -> List[Proposal]:
        """A newer release of Horovod itself."""
        last = next(iter(recipe.load(HOROVOD).versions()))
        known = self.releases("horovod")
        version = newest.newest(known, [self.matrix.axes["python"][0]], "x86_64")
        if not version or version <= Version(last):
            return []
        sdist = next((each for each in known[version] if not each.name.endswith(".whl")), None)
        if not sdist or not sdist.sha256:
            return []
        lines = enumerate(bound.RECIPE.read_text().split("\n"), 1)
        (number,) = (number for number, line in lines if f'version("{last}"' in line)
        directive = f'    version("{version}", sha256="{sdist.sha256}")'
        axis = _node(definition.FILE, ("axes", "horovod")).start_mark.line + 1
        changes = (
            Change.of(bound.RECIPE, number, lambda before: f"{directive}\n{before}"),
            Change.of(definition.FILE, axis, lambda text: text.replace("[", f'["{version}", ', 1)),
            _must({"horovod": str(version)}),
        )
        note = "Each patch ends with 0.28.1: see which ones the release still needs."
        cells = (self._default(horovod=str(version)),)
        return [Proposal("horovod", last, str(version), changes, cells, note)]

    def repository(self, kind: str, address: str) -> List[Proposal]:
        """Newer releases of Spack (``spack``) or of its packages (``packages``).

        Args:
            address: the git address of the repository.

        Raises:
            HvdError: it cannot be reached.
        """
        references = clone.references(address, "refs/tags/v*").items()
        matches = ((_TAGS[kind].fullmatch(name), commit) for name, commit in references)
        tags = {match[1]: commit for match, commit in matches if match}
        found = []
        for number, pair in enumerate(pinned().pairs):
            pin = getattr(pair, kind)
            later = [
                tag
                for tag, commit in tags.items()
                if _series(tag) == _series(pin.version)
                and Version(tag) >= Version(pin.version)
                and pin.version != tag
                and pin.commit != commit
            ]
            if later:
                tag = max(later, key=Version)
                found.append(self._repinned(kind, number, pair, tag, tags[tag]))
        last = max((getattr(pair, kind).version for pair in pinned().pairs), key=Version)
        tag = max(tags, key=Version, default=last)
        if Version(_series(tag)) > Version(_series(last)):
            found.append(self._new_pair(kind, last, tag, tags[tag]))
        return found

    def _repinned(self, kind: str, number: int, pair: Pair, tag: str, commit: str) -> Proposal:
        """Return the newer release of the series that a pair has."""
        pin = getattr(pair, kind)
        line = _node(VERSIONS, ("pairs", str(number), kind)).start_mark.line + 1
        note, version = f"The pair {pair.name}.", tag
        if kind == "spack":
            note += f" The pinned commit {pin.commit[:12]} is not that of {tag}."
            version = pin.version
        change = Change.of(
            VERSIONS,
            line,
            lambda before: before.replace(pin.commit, commit).replace(pin.version, version),
        )
        cells = self._cells_with("engine", (pair.name,), _pythons(self.matrix))
        return Proposal(_NAMES[kind], pin.version, tag, (change,), tuple(cells), note)

    def _new_pair(self, kind: str, last: str, tag: str, commit: str) -> Proposal:
        """Return a pair with the new series beside the newest of the other repository."""
        pair = max(pinned().pairs, key=lambda pair: pair.packages.version)
        spack, packages, series = pair.spack, pair.packages, _series(tag)[1:]
        if kind == "packages":
            name, packages = f"spack-{spack.version}-{series}", versions.Pin(tag, commit)
        else:
            name, spack = f"spack-{series}", versions.Pin(series, commit)
        line = _last_line(VERSIONS, "pairs", str(len(pinned().pairs) - 1))
        text = (
            f"- name: {name}\n"
            f'  spack: {{version: "{spack.version}", commit: {spack.commit}}}\n'
            f"  packages: {{version: {packages.version}, commit: {packages.commit}}}"
        )
        changes = (Change.insertion(VERSIONS, line, text), _must({"engine": name}))
        note = f"A further pair, {name}; also: ./hvd concretize --all --pair {name}"
        return Proposal(_NAMES[kind], last, tag, changes, (self._default(engine=name),), note)

    def _cells_with(self, axis: str, values: Sequence[str], pythons: Sequence[str]) -> List[str]:
        """Return for each value the cell that differs least from the defaults."""
        found = []
        for value in values:
            cells = [
                cell
                for cell in self._cells
                if getattr(cell, axis) == value and cell.python in pythons
            ]
            if cells:
                found.append(min(cells, key=self._unusual).id)
        return found

    def _unusual(self, cell: Cell) -> int:
        return sum(cell.values[axis] != values[0] for axis, values in self.matrix.axes.items())

    def _default(self, **values: str) -> str:
        """Return the name of the cell with the defaults beside ``values``, which may be new."""
        usual = {axis: each[0] for axis, each in self.matrix.axes.items()}
        return Cell(**{**usual, "engine": PIP, **values}).id


def tool(releases: Callable[[str], Releases]) -> List[Proposal]:
    """Return one proposal for what ``ci/pyproject.toml`` asks for; empty if all are the newest.

    Args:
        releases: looks a distribution up.
    """
    have: Dict[str, Version] = {}
    text = paths.REQUIREMENTS.read_text() + paths.REQUIREMENTS_PLOTS.read_text()
    for match in _PIN.finditer(text):
        if "hvd (pyproject.toml" in match[0]:
            version = Version(match["version"])
            # older ones are for older Pythons
            have[match["name"]] = max(version, have.get(match["name"], version))
    python = ".".join(platform.python_version_tuple()[:2])
    found = {name: newest.newest(releases(name), [python], platform.machine()) for name in have}
    later = {name: best for name, best in found.items() if best and best > have[name]}
    if not later:
        return []
    before, after = (", ".join(f"{name} {each[name]}" for name in later) for each in (have, later))
    note = (
        "Make the files again with the commands in ci/pyproject.toml and --upgrade, as far as "
        "the bounds there allow; ./hvd test tells whether it works."
    )
    return [Proposal(str(paths.REQUIREMENTS.relative_to(paths.ROOT)), before, after, (), (), note)]


def _series(version: str) -> str:
    """Return the series of a version of Spack or of its packages: ``v1.1`` of v1.1.3 and 1.1."""
    return ".".join(f"v{version.lstrip('v')}".split(".")[:2])


def _pythons(matrix: Matrix) -> List[str]:
    return sorted(matrix.axes["python"], key=Version)


def _replaced(pin: Pin, version: str) -> Change:
    old, new = (f"{pin.name}=={each}" for each in (pin.version, version))
    pattern = rf"(?<![\w-]){re.escape(old)}"
    return Change.of(pin.file, pin.line, lambda before: re.sub(pattern, new, before))


def _must(values: Mapping[str, str]) -> Change:
    """Return the change that has the cell with these values tried."""
    line = _last_line(definition.FILE, "must", str(len(definition.matrix().must) - 1))
    return Change.insertion(definition.FILE, line, f"- {_flow(dict(values))}")


def _flow(value: Mapping[str, object]) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()


def _node(file: pathlib.Path, path: Sequence[str]) -> yaml.Node:
    node = yaml.compose(file.read_text())
    for key in path:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[int(key)]
        else:
            node = next(value for name, value in node.value if name.value == key)
    return node


def _last_line(file: pathlib.Path, *path: str) -> int:
    """Return the last line of what is at ``path``, comments after it left out."""
    node = _node(file, path)
    while isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node.end_mark.line + 1
