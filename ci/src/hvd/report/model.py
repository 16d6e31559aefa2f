"""What a run of `./hvd run` leaves behind: the data of its report, and the file they live in."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing
from typing import Any, Dict, List

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.steps import Stage
from hvd.model.dag import DagNode

#: Raised whenever a field is added, removed or changes its meaning.
SCHEMA = 2


@dataclasses.dataclass
class RunReport:
    """Everything that the report of one run says.

    Args:
        environment: name of the environment, such as ``local-hvd``.
        engine: ``spack`` or ``pip``.
        started: when the run began, ISO 8601 in UTC, such as ``2026-01-31T08:15:00Z``.
        specs: the root specs that were asked for.
        versions: name to version of what matters, such as ``{"Horovod": "0.28.1"}``.
        host: ``os``, ``cpu``, ``cores`` and ``memory``; a memory given as a number is in bytes.
        dag: the concretized DAG.
        stages: the stages that were reached, in order.
        checks: what ``Check.to_dict()`` of `hvd.smoke.run` gave, one dict for each check.
        commits: the whole commits of this repository, Spack and its packages; ``+`` behind one
            that has changes.
        bom: the bill of materials of what was built; empty where nothing was.
        build_times: dicts with ``engine``, ``seconds``, ``ratio`` (to plain pip) and ``note``.
    """

    environment: str
    engine: str
    started: str
    specs: List[str] = dataclasses.field(default_factory=list)
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    host: Dict[str, Any] = dataclasses.field(default_factory=dict)
    dag: List[DagNode] = dataclasses.field(default_factory=list)
    stages: List[Stage] = dataclasses.field(default_factory=list)
    checks: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    commits: Dict[str, str] = dataclasses.field(default_factory=dict)
    bom: str = ""
    build_times: List[Dict[str, Any]] = dataclasses.field(default_factory=list)

    def save(self, path: pathlib.Path) -> None:
        """Write the report to ``path``, entirely or not at all.

        Raises:
            HvdError: the file cannot be written; what stood there before still does.
        """
        data = {"schema": SCHEMA, **dataclasses.asdict(self)}
        # os.fspath: a path that came in as an object is written as its name
        text = json.dumps(data, indent=2, default=os.fspath)
        write_atomically(path, f"{text}\n".encode())

    @classmethod
    def load(cls, path: pathlib.Path) -> RunReport:
        """The report in ``path``.

        Raises:
            HvdError: there is no such file, it is damaged, or another version of hvd wrote it.
        """
        remedy = "Run `./hvd run` again to write it anew."
        try:
            data = json.loads(path.read_bytes())
        except OSError as error:
            raise HvdError(f"cannot read {path}: {error.strerror}", remedy) from error
        except ValueError as error:  # not JSON, or not even UTF-8
            raise HvdError(f"{path} is not valid JSON: {error}", remedy) from error
        if not isinstance(data, dict) or "schema" not in data:
            raise HvdError(f"{path} is no report of hvd: it has no key `schema`", remedy)
        schema = data.pop("schema")
        if schema != SCHEMA:
            raise HvdError(
                f"{path}: schema {schema!r} is not one this version of hvd reads ({SCHEMA})",
                f"Read it with the version of hvd that wrote it. {remedy}",
            )
        try:
            return _decode(cls, data, "")
        except ValueError as error:
            raise HvdError(f"{path}: {error}", remedy) from error


def _decode(hint: Any, value: Any, where: str) -> Any:
    """``value``, parsed from JSON, as an object of the type ``hint``.

    Raises:
        ValueError: it is none; the message begins with the key, ``where``.
    """
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(hint, value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:  # Optional[X]
        return None if value is None else _decode(arguments[0], value, where)
    if hint is float and type(value) is int:
        return float(value)
    expected = origin or hint
    if hint is not Any and not isinstance(value, expected):
        raise ValueError(f"{where}: {value!r} is no {expected.__name__}")
    if origin is list:
        return [_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    return value


def _decode_dataclass(cls: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {value!r} is no object")
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    for key in value:
        if key not in hints:
            raise ValueError(f"{prefix}{key}: no such key")
    for key in hints:
        if key not in value:
            raise ValueError(f"{prefix}{key}: missing")
    fields = {key: _decode(hints[key], item, prefix + key) for key, item in value.items()}
    try:
        return cls(**fields)
    except ValueError as error:
        raise ValueError(f"{prefix}status: {error}") from error
