"""Look up newer releases of what is pinned, and say what would change."""

from __future__ import annotations

import pathlib
import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import yaml
from packaging.version import Version

from hvd.core import paths
from hvd.fetch import clone, python_index
from hvd.matrix import definition
from hvd.matrix.definition import PIP, Cell, Matrix
from hvd.matrix.plan import Planned
from hvd.model import recipe
from hvd.model.environment import HOROVOD
from hvd.model.versions import VERSIONS, Pair, pinned
from hvd.upkeep import bound, newest, pins
from hvd.upkeep.change import Change
from hvd.upkeep.newest import Releases
from hvd.upkeep.pins import Pin
from hvd.upkeep.proposal import Proposal

RECIPE = paths.PACKAGES / HOROVOD.replace("-", "_") / "package.py"
#: Releases of Spack's packages; the others are of stacks.
_PACKAGES_TAG = re.compile(r"refs/tags/v(\d{4}\.\d{2})\.(\d+)$")
_SPACK_TAG = re.compile(r"refs/tags/v(\d+\.\d+)\.(\d+)$")


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
        found = pins.load(self.matrix)
        together: Dict[Tuple[str, str], List[Pin]] = {}
        for pin in found:
            together.setdefault((pins.package(pin.name), pin.version), []).append(pin)
        updates = (self._update(each) for each in together.values())
        kinds: Dict[Tuple[str, str, str], List[Pin]] = {}
        for pin in found:
            if pin.main:
                key = pin.axis, pins.kind(pin.values[0]), pin.machine
                kinds.setdefault(key, []).append(pin)
        later = (self._new_series(each) for key, each in kinds.items() if key[2] == "x86_64")
        return [each for each in (*updates, *later) if each]

    def _update(self, together: List[Pin]) -> Optional[Proposal]:
        """Return the newest release that can take the place of all these pins."""
        versions = []
        for pin in together:
            known = self.releases(pin.name)
            # Pythons that the pinned release has been given up for are no loss
            pythons = newest.supported(
                known.get(Version(pin.version), ()), pin.pythons, pin.machine
            )
            best = newest.newest(known, pythons or pin.pythons, pin.machine, pin.series)
            versions.append(best or Version(pin.version))
        version, first = min(versions), together[0]
        if version <= Version(first.version):
            return None
        changes = [_replaced(pin, str(version)) for pin in together]
        cells: List[str] = []
        for pin in together:
            cells += self._cells_with(pin.axis, pin.values, pin.pythons)
        return Proposal(
            first.name, first.version, str(version), tuple(changes), tuple(dict.fromkeys(cells))
        )

    def _new_series(self, kind: List[Pin]) -> Optional[Proposal]:
        """Return the newest release if it is later than every series of its kind."""
        last = max(kind, key=lambda pin: Version(pin.version))
        known, axis = self.releases(last.name), last.axis
        default = self.matrix.axes["python"][0]
        version = newest.newest(known, [default], last.machine)
        if not version or version < Version(last.version):
            return None
        if any(newest.within(str(version), pin.series) for pin in kind):
            return None
        series = ".".join(str(version).split(".")[: last.series.count(".") + 1])
        value = f"{pins.kind(last.values[0])}-{series}"
        entry = self._entry(last, version)
        line = _last_line(definition.FILE, "axes", axis, last.values[0])
        changes = [_inserted(definition.FILE, line, f"    {value}: {_flow(entry)}")]
        changes.append(_must({axis: value}))
        note = ""
        package = pins.package(last.name)
        refused = bound.refused_from(package, str(version)) if axis == "framework" else ""
        if refused:
            raised = bound.raised(package, refused, str(version))
            changes += raised or []
            note = "The recipe's bound is raised; the README and the support matrix have it too."
            if raised is None:
                note = f"The recipe refuses {package}@{refused}:, and its bound is raised by hand."
        cell = self._default(**{axis: value})
        return Proposal(last.name, last.version, str(version), tuple(changes), (cell,), note)

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
        entry: Dict[str, object] = {
            "frameworks": list(before.frameworks),
            "python": f">={pythons[0]},<{_after(pythons[-1])}",
            "requirements": [requirement, *others],
        }
        for_cpus = {each.public for each in known if (each.local or "").startswith("cpu")}
        if before.cuda is not None and version.public not in for_cpus:
            entry["cuda"] = f">={pythons[0]}"
        return entry

    def horovod(self) -> List[Proposal]:
        """A newer release of Horovod itself."""
        releases = list(recipe.load(HOROVOD).versions())
        known = self.releases("horovod")
        version = newest.newest(known, [self.matrix.axes["python"][0]], "x86_64")
        if not version or version <= Version(releases[0]):
            return []
        sdist = next((each for each in known[version] if not each.name.endswith(".whl")), None)
        if not sdist or not sdist.sha256:
            return []
        lines = RECIPE.read_text().split("\n")
        (number,) = (n for n, line in enumerate(lines) if f'version("{releases[0]}"' in line)
        text = f'    version("{version}", sha256="{sdist.sha256}")'
        before = lines[number]
        name = str(RECIPE.relative_to(paths.ROOT))
        first = _line_of(definition.FILE, "axes", "horovod")
        axis = _text(definition.FILE, first)
        new = axis.replace("[", f'["{version}", ', 1)
        changes = (
            Change(name, number + 1, before, f"{text}\n{before}"),
            Change(str(definition.FILE.relative_to(paths.ROOT)), first, axis, new),
            _must({"horovod": str(version)}),
        )
        note = "Each patch ends with 0.28.1: see which ones the release still needs."
        cell = self._default(horovod=str(version))
        return [Proposal("horovod", releases[0], str(version), changes, (cell,), note)]

    def repositories(self, addresses: Mapping[str, str]) -> List[Proposal]:
        """Newer releases of Spack and of its packages.

        Args:
            addresses: git addresses of ``spack`` and ``packages``.

        Raises:
            HvdError: one cannot be reached.
        """
        return [*self._packages(addresses["packages"]), *self._spack(addresses["spack"])]

    def _packages(self, address: str) -> List[Proposal]:
        tags = _tags(address, _PACKAGES_TAG)
        found = []
        for pair in pinned().pairs:
            series, _, number = pair.packages.version.lstrip("v").rpartition(".")
            patched = max((n for s, n in tags if s == series), default=0)
            if patched > int(number):
                version, commit = f"v{series}.{patched}", tags[series, patched]
                found.append(self._repinned("spack-packages", pair, "packages", version, commit))
        newest_pair = max(pinned().pairs, key=lambda pair: pair.packages.version)
        last = newest_pair.packages.version
        series, number = max(tags, default=("", 0))
        if f"v{series}" > last.rpartition(".")[0]:
            version, commit = f"v{series}.{number}", tags[series, number]
            spack = newest_pair.spack
            found.append(
                self._new_pair(
                    ("spack-packages", last, version),
                    f"spack-{spack.version}-{series}",
                    *(spack.version, spack.commit, version, commit),
                )
            )
        return found

    def _spack(self, address: str) -> List[Proposal]:
        tags = _tags(address, _SPACK_TAG)
        found = []
        for pair in pinned().pairs:
            patched = max((n for s, n in tags if s == pair.spack.version), default=None)
            if patched is None:
                continue
            commit = tags[pair.spack.version, patched]
            if commit != pair.spack.commit:
                name = f"v{pair.spack.version}.{patched}"
                found.append(self._repinned("spack", pair, "spack", name, commit))
        known = max(_numbers(pair.spack.version) for pair in pinned().pairs)
        series = max((s for s, _ in tags), key=_numbers, default="0")
        if _numbers(series) > known:
            number = max(n for s, n in tags if s == series)
            packages = max(pinned().pairs, key=lambda pair: pair.packages.version).packages
            found.append(
                self._new_pair(
                    ("spack", ".".join(map(str, known)), f"v{series}.{number}"),
                    f"spack-{series}",
                    *(series, tags[series, number], packages.version, packages.commit),
                )
            )
        return found

    def _repinned(self, name: str, pair: Pair, key: str, version: str, commit: str) -> Proposal:
        """Return the newer release of the series that a pair has."""
        number = list(pinned().pairs).index(pair)
        line = _line_of(VERSIONS, "pairs", str(number), key)
        before = _text(VERSIONS, line)
        pin = getattr(pair, key)
        after = before.replace(pin.commit, commit)
        if key == "packages":
            after = after.replace(pin.version, version)
        change = Change(str(VERSIONS.relative_to(paths.ROOT)), line, before, after)
        note = f"The pair {pair.name}."
        if key == "spack":
            note += f" The pinned commit {pin.commit[:12]} is not that of {version}."
        cells = self._cells_with("engine", (pair.name,), _pythons(self.matrix))
        return Proposal(name, pin.version, version, (change,), tuple(cells), note)

    def _new_pair(
        self, named: Tuple[str, str, str], pair: str, spack: str, commit: str, *packages: str
    ) -> Proposal:
        line = _last_line(VERSIONS, "pairs", str(len(pinned().pairs) - 1))
        text = "\n".join(
            [
                f"- name: {pair}",
                f'  spack: {{version: "{spack}", commit: {commit}}}',
                f"  packages: {{version: {packages[0]}, commit: {packages[1]}}}",
            ]
        )
        changes = (_inserted(VERSIONS, line, text), _must({"engine": pair}))
        note = f"A further pair, {pair}; also: ./hvd concretize --all --pair {pair}"
        return Proposal(*named, changes, (self._default(engine=pair),), note)

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


def _pythons(matrix: Matrix) -> List[str]:
    return sorted(matrix.axes["python"], key=_numbers)


def _numbers(version: str) -> List[int]:
    return [int(number) for number in version.split(".")]


def _after(python: str) -> str:
    major, minor = _numbers(python)
    return f"{major}.{minor + 1}"


def _tags(address: str, form: re.Pattern) -> Dict[Tuple[str, int], str]:
    """Return the commits of releases by series and number."""
    found = {}
    for name, commit in clone.references(address, "refs/tags/v*").items():
        match = form.match(name)
        if match:
            found[match[1], int(match[2])] = commit
    return found


def _replaced(pin: Pin, version: str) -> Change:
    before = _text(pin.file, pin.line)
    old, new = (f"{pin.name}=={each}" for each in (pin.version, version))
    name = str(pin.file.relative_to(paths.ROOT))
    return Change(name, pin.line, before, re.sub(rf"(?<![\w-]){re.escape(old)}", new, before))


def _inserted(file: pathlib.Path, line: int, text: str) -> Change:
    """Return the change that puts ``text`` after a line."""
    before = _text(file, line)
    return Change(str(file.relative_to(paths.ROOT)), line, before, f"{before}\n{text}")


def _must(values: Mapping[str, str]) -> Change:
    """Return the change that has the cell with these values tried."""
    number = len(definition.matrix().must) - 1
    line = _last_line(definition.FILE, "must", str(number))
    return _inserted(definition.FILE, line, f"- {_flow(dict(values))}")


def _text(file: pathlib.Path, line: int) -> str:
    return file.read_text().split("\n")[line - 1]


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


def _line_of(file: pathlib.Path, *path: str) -> int:
    return _node(file, path).start_mark.line + 1


def _last_line(file: pathlib.Path, *path: str) -> int:
    """Return the last line of what is at ``path``, comments after it left out."""
    node = _node(file, path)
    while isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node.end_mark.line + 1
