"""The output of ``horovodrun --check-build``, compared with what was asked for.

``horovodrun --check-build`` exits with 0 whatever is missing (horovod/runner/launch.py,
``check_build``), so its text has to be compared.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, FrozenSet, Iterable, List, Tuple

from hvd.model import recipe

#: Frameworks that Horovod has a compiled plugin for, and lists.
PLUGINS = tuple(recipe.load("py-horovod").module.PLUGINS)
#: Sections of the text and the attributes of `BuildReport` and `Expectation` they belong to.
SECTIONS = {
    "Available Frameworks": "frameworks",
    "Available Controllers": "controllers",
    "Available Tensor Operations": "operations",
}

_VERSION = re.compile(r"^\s*Horovod v(\S+):\s*$", re.MULTILINE)
#: From 0.22 on ``horovod.torch`` can be imported without its plugin, so that it is listed as built
#: (https://github.com/horovod/horovod/blob/v0.28.1/horovod/torch/__init__.py); it says this then.
_NO_TORCH = re.compile(r"^Extension horovod\.torch has not been built", re.MULTILINE)
_SECTION = re.compile(r"^\s*(Available [A-Z][A-Za-z ]+):\s*$")
_ITEM = re.compile(r"^\s*\[([X ])\] (\S+)\s*$")


class CheckBuildError(ValueError):
    """A text that is not the output of ``horovodrun --check-build``."""


@dataclasses.dataclass(frozen=True)
class Expectation:
    """The frameworks, controllers and operations to expect, in the words of the Spack variants.

    Args:
        version: such as ``0.28.1``.
        frameworks: those with a plugin of their own, of ``pytorch``, ``tensorflow``, ``mxnet``.
        controllers: of ``mpi``, ``gloo``.
        operations: of ``nccl``, ``ddl``, ``ccl``, ``mpi``, ``gloo``.  Horovod lists ``mpi``
            and ``gloo`` whenever it is built with them, also where NCCL does the work.
        extras: frameworks without a plugin of their own, which Horovod does not list: of
            ``keras``, ``spark``, ``ray``.
    """

    version: str
    frameworks: FrozenSet[str]
    controllers: FrozenSet[str]
    operations: FrozenSet[str]
    extras: FrozenSet[str] = frozenset()

    @classmethod
    def of(
        cls,
        version: str,
        frameworks: Iterable[str],
        controllers: Iterable[str],
        operations: Iterable[str],
    ) -> Expectation:
        """Return what the variants of a spec ask for.

        Args:
            frameworks: all of them; Keras uses the plugin of TensorFlow.
            operations: of ``nccl``, ``ddl``, ``ccl``.
        """
        names = set(frameworks)
        plugins = names | ({"tensorflow"} if "keras" in names else set())
        return cls(
            version=version,
            frameworks=frozenset(plugins & set(PLUGINS)),
            controllers=frozenset(controllers),
            operations=frozenset({*operations, *controllers}),
            extras=frozenset(names - set(PLUGINS)),
        )


@dataclasses.dataclass(frozen=True)
class BuildReport:
    """The text, parsed: the version, and for every listed item whether it was built."""

    version: str
    frameworks: Dict[str, bool]
    controllers: Dict[str, bool]
    operations: Dict[str, bool]


def parse(text: str) -> BuildReport:
    """Parse the output of ``horovodrun --check-build --verbose``.

    Raises:
        CheckBuildError: the version or a whole section is missing.
    """
    version = _VERSION.search(text)
    if not version:
        raise CheckBuildError("the output of `horovodrun --check-build` names no Horovod version")
    items: Dict[str, Dict[str, bool]] = {attribute: {} for attribute in SECTIONS.values()}
    attribute = ""
    for line in text[version.end() :].splitlines():
        section = _SECTION.match(line)
        item = _ITEM.match(line)
        if section:
            attribute = SECTIONS.get(section[1], "")
        elif item and attribute:
            items[attribute][item[2].lower()] = item[1] == "X"
    for title, attribute in SECTIONS.items():
        if not items[attribute]:
            raise CheckBuildError(f"the output of `horovodrun --check-build` has no {title!r}")
    if _NO_TORCH.search(text):
        items["frameworks"]["pytorch"] = False
    return BuildReport(version[1], **items)


def table(report: BuildReport, expectation: Expectation) -> List[Dict[str, Any]]:
    """One row per item: ``section``, ``item``, ``expected``, ``built``.

    ``built`` is None for an item that was expected and that Horovod does not even list.
    """
    rows: List[Tuple[str, str, Any, Any]] = [
        ("version", "horovod", expectation.version, report.version)
    ]
    for section in SECTIONS.values():
        built: Dict[str, bool] = getattr(report, section)
        expected: FrozenSet[str] = getattr(expectation, section)
        for item in [*built, *sorted(expected - set(built))]:
            rows.append((section, item, item in expected, built.get(item)))
    return [dict(zip(("section", "item", "expected", "built"), row)) for row in rows]


def differences(report: BuildReport, expectation: Expectation) -> List[str]:
    """Say in which items the report is not as expected; empty if it is."""
    return [
        _difference(**row) for row in table(report, expectation) if row["expected"] != row["built"]
    ]


def _difference(section: str, item: str, expected: Any, built: Any) -> str:
    if section == "version":
        return f"version: expected Horovod {expected}, got {built}"
    if built is None:
        return f"{section}: expected {item}, which this Horovod does not list"
    if expected:
        return f"{section}: expected {item}, but it is not built"
    return f"{section}: {item} is built, but not expected"
