"""The data of a report and the JSON file that holds them."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, Dict, List

from hvd.core import schema
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.paths import shorten
from hvd.core.steps import Stage
from hvd.model.solution import DagNode

#: Raised whenever a field is added, removed or changes its meaning.
SCHEMA = 2


@dataclasses.dataclass
class RunReport:
    """The report of one run.

    Args:
        environment: name of the environment, such as ``local-hvd``.
        engine: ``spack`` or ``pip``.
        started: when the run began, ISO 8601 in UTC, such as ``2026-01-31T08:15:00Z``.
        specs: the root specs that were asked for.
        versions: name to version of what matters, such as ``{"Horovod": "0.28.1"}``.
        host: ``os``, ``cpu``, ``cores`` and ``memory`` (bytes).
        dag: the concretized DAG.
        stages: the stages that were reached, in order.
        checks: one dict for each check, as ``Check.to_dict()`` of `hvd.smoke.run` returns it.
        commits: the full commits of this repository, Spack and its packages; ``+`` after one
            with local changes.
        bom: path of the bill of materials; empty if nothing was built.
        build_times: dicts with ``engine``, ``seconds``, ``ratio`` (to plain pip; may be None)
            and ``note``.
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
        """Write the report to ``path`` atomically.

        Raises:
            HvdError: the file cannot be written; an earlier one is left as it was.
        """
        data = {"schema": SCHEMA, **dataclasses.asdict(self)}
        text = json.dumps(data, indent=2, default=os.fspath)
        write_atomically(path, f"{text}\n".encode())

    @classmethod
    def load(cls, path: pathlib.Path) -> RunReport:
        """Read the report in ``path``.

        Raises:
            HvdError: there is no such file, it is damaged, or another version of hvd wrote it.
        """
        remedy = "write a new one: ./hvd run"
        try:
            data = json.loads(path.read_bytes())
            if data["schema"] != SCHEMA:
                raise ValueError(f"key 'schema' is not {SCHEMA}")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise HvdError(f"cannot read the report {shorten(path)}: {error}", remedy) from error
        return schema.structure(cls, data, path, remedy)
