"""Read YAML and JSON files; an error names file, key and way out."""

from __future__ import annotations

import collections.abc
import dataclasses
import pathlib
import re
from typing import Any, Dict, List, Literal, Optional, Type, TypeVar, get_args, get_origin

import cattrs
import yaml
from cattrs.gen import make_dict_structure_fn, override

from hvd.core.errors import HvdError, nearest
from hvd.core.paths import shorten


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # the one in C is ten times as fast
    """Refuses a key that is there twice; PyYAML takes the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        seen = set()
        for key in scalars:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Kind = TypeVar("_Kind")
#: Metadata of a dataclass' field that is no key of a file.
DERIVED = {"derived": True}


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


def structure(
    kind: Type[_Kind],
    data: Any,
    file: pathlib.Path,
    remedy: str,
    converter: Optional[cattrs.Converter] = None,
) -> _Kind:
    """Return ``data``, which is from ``file``, as the dataclass ``kind``.

    Args:
        remedy: what an error says to do.
        converter: such as :func:`strict` returns; one that converts types where None.
    """
    try:
        return (converter or cattrs.global_converter).structure(data, kind)
    except cattrs.BaseValidationError as error:
        found = cattrs.transform_error(error, format_exception=_explained)[0]
        problem, _, path = found.rpartition(" @ ")
        raise _error(file, path, problem, remedy) from error
    except (TypeError, ValueError) as error:
        raise _error(file, "$", str(error), remedy) from error


def _error(file: pathlib.Path, path: str, problem: str, remedy: str) -> HvdError:
    # $.partitions['batch'].gpus to partitions.batch.gpus
    key = re.sub(r"\['(.*?)'\]", r".\1", path)[1:].lstrip(".")
    return HvdError(": ".join(filter(None, (shorten(file), key, problem))), remedy)


def _explained(error: BaseException, kind: Optional[type]) -> str:
    if isinstance(error, KeyError):
        return "missing"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        unknown = sorted(error.extra_fields, key=str)[0]
        fields = dataclasses.fields(error.cl)
        known = [field.name for field in fields if field.metadata != DERIVED]
        return f"unknown key '{unknown}'; {nearest(str(unknown), known)}"
    return str(error)


def strict() -> cattrs.Converter:
    """Return a converter that converts no types and refuses unknown keys."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    names = {str: "text", int: "a whole number", bool: "true or false"}

    def primitive(value: Any, kind: type) -> Any:
        if type(value) is kind:
            return value
        shown = _shown(value)
        hint = "; put it in quotes" if kind is str and shown.startswith("'") else ""
        raise TypeError(f"{shown} is not {names[kind]}{hint}")

    def number(value: Any, _: type) -> float:
        if type(value) in (int, float):
            return value
        raise TypeError(f"{_shown(value)} is not a number")

    def choice(value: Any, kind: Any) -> Any:
        if value in get_args(kind):
            return value
        shown = _shown(value)
        hint = nearest(shown.strip("'"), get_args(kind))
        raise ValueError(f"unknown value {shown}; {hint}")

    def mapping(kind: type) -> Any:
        if dataclasses.is_dataclass(kind):
            derived = [field for field in dataclasses.fields(kind) if field.metadata == DERIVED]
            omitted = {field.name: override(omit=True) for field in derived}
            base = make_dict_structure_fn(kind, converter, **omitted)
        else:
            base = converter.get_structure_hook(Dict[get_args(kind)])
        return _only(dict, "a mapping", base)

    def words(kind: type) -> Any:
        base = converter.get_structure_hook(List[get_args(kind)[0]])
        return _only(list, "a list", lambda value, _: tuple(base(value, List)))

    for each in names:
        converter.register_structure_hook(each, primitive)
    converter.register_structure_hook(float, number)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) is Literal, choice)
    converter.register_structure_hook_factory(
        lambda kind: dataclasses.is_dataclass(kind) or get_origin(kind) is collections.abc.Mapping,
        mapping,
    )
    converter.register_structure_hook_factory(lambda kind: get_origin(kind) is tuple, words)
    return converter


def _only(kind: type, name: str, base: Any) -> Any:
    def hook(value: Any, wanted: type) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{_shown(value)} is not {name}")
        return base(value, wanted)

    return hook


def _shown(value: Any) -> str:
    """Name ``value`` for a message; by YAML's anchors, a mapping or a list can be of any size."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"'{str(value)[:80]}'"
