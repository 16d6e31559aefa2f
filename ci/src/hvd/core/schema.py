"""Read and write YAML and JSON files; an error names file, key and remedy."""

from __future__ import annotations

import datetime
import functools
import json
import pathlib
from typing import Any, Dict, List, Type, TypeVar

import cattrs
import jsonschema
import yaml

from hvd.core.errors import HvdError, nearest
from hvd.core.files import write_atomically
from hvd.core.paths import shorten


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # the one in C is ten times as fast
    """Refuses a key that is there twice; PyYAML takes the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' is there twice", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else None)
        return super().construct_mapping(node, deep)


_Kind = TypeVar("_Kind")


def read(file: pathlib.Path) -> Any:
    """Return the content of the YAML ``file``."""
    shown = shorten(file)
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise HvdError(f"{shown}: {error.strerror}", "restore it from git") from error
    except UnicodeDecodeError as error:
        raise HvdError(f"{shown}: byte {error.start} is not UTF-8", "save it as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise HvdError(f"{shown}: line {line}: {error.problem}", "fix the YAML") from error
    except yaml.YAMLError as error:
        raise HvdError(f"{shown}: {error}", "fix the YAML") from error


def load(file: pathlib.Path, schema: pathlib.Path) -> Dict[str, Any]:
    """Return the content of the YAML ``file``, checked against ``schema``.

    Raises:
        HvdError: it cannot be read, is not YAML, or differs from the schema.
    """
    data = read(file)
    check(data, schema, file)
    return data


def structure(kind: Type[_Kind], data: Any, file: pathlib.Path, remedy: str) -> _Kind:
    """Return ``data``, which is from ``file``, as the dataclass ``kind``.

    Raises:
        HvdError: a field is missing or of another type; carries ``remedy``.
    """
    try:
        return cattrs.structure(data, kind)
    except cattrs.BaseValidationError as error:
        problem, _, key = cattrs.transform_error(error)[0].partition(" @ $")
        raise HvdError(f"{shorten(file)}: key '{key[1:]}': {problem}", remedy) from error


def load_record(file: pathlib.Path, schema: pathlib.Path) -> Dict[str, Any]:
    """Return what :func:`save_record` wrote to the JSON ``file``.

    Raises:
        HvdError: it is damaged, or differs from ``schema``.
    """
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise HvdError(f"{shorten(file)}: {error}", "restore it, or remove it") from error
    check(data, schema, file)
    return data


def save_record(file: pathlib.Path, data: Dict[str, Any], schema: pathlib.Path) -> None:
    """Write ``data`` to the JSON ``file`` atomically, keys sorted for small diffs.

    Raises:
        HvdError: it differs from ``schema``, or cannot be written.
    """
    check(data, schema, file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, f"{json.dumps(data, indent=1, sort_keys=True)}\n".encode())


def check(data: Any, schema: pathlib.Path, file: pathlib.Path) -> None:
    """Compare ``data``, which is from ``file``, with ``schema``.

    Raises:
        HvdError: the first difference.
    """
    errors = sorted(_validator(schema).iter_errors(data), key=lambda error: error.json_path)
    if errors:
        raise _explained(errors[0], file)


@functools.cache
def _validator(schema: pathlib.Path) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(schema.read_text()))


def _explained(error: jsonschema.ValidationError, file: pathlib.Path) -> HvdError:
    """``error`` in our words."""
    path = [str(part) for part in error.absolute_path]
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = sorted(set(error.instance) - set(known))[0]
        return HvdError(f"{_at(file, [*path, unknown])} is unknown", nearest(unknown, known))
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance][0]
        meaning = error.schema.get("properties", {}).get(missing, {}).get("description", "")
        return HvdError(f"{_at(file, [*path, missing])} is missing", f"add it. {meaning}".strip())
    if error.parent is None and "propertyNames" in error.absolute_schema_path:
        # jsonschema gives a bad name of a key at the path of what holds it
        choices = error.validator_value if error.validator == "enum" else ()
        remedy = nearest(error.instance, choices) or "use lower-case letters, digits and -"
        return HvdError(f"{_at(file, [*path, str(error.instance)])} is not allowed", remedy)
    value = error.instance
    if error.validator == "enum":
        choices = [str(choice) for choice in error.validator_value]
        remedy = nearest(str(value), choices)
        return HvdError(f"{_at(file, path)}: '{value}' is none of {', '.join(choices)}", remedy)
    meaning = error.schema.get("description", "")
    if error.validator == "type" and error.validator_value == "string":
        if isinstance(value, (bool, int, float, datetime.date)):
            return HvdError(f"{_at(file, path)}: {value} is not text", "put it in quotes")
    shown = "it" if isinstance(value, (dict, list)) else f"'{value}'"
    expected = {"type": f"of type {error.validator_value}", "minimum": "large enough"}
    return HvdError(
        f"{_at(file, path)}: {shown} is not {expected.get(error.validator, 'valid')}",
        meaning or error.message,
    )


def _at(file: pathlib.Path, path: List[str]) -> str:
    return f"{shorten(file)}: key '{':'.join(path)}'" if path else shorten(file)
