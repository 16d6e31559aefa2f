"""Parts of an elastic job that the whole one reaches by chance alone."""

from __future__ import annotations

import ast
import pathlib

import pytest

from tests.checkout import run

MODULE = pathlib.Path(__file__).with_name("elastic_parts.py")
PARTS = [
    each.name
    for each in ast.parse(MODULE.read_text()).body
    if isinstance(each, ast.FunctionDef) and not each.args.args
]


@pytest.mark.parametrize("part", PARTS)
def test_elastic_part(built_horovod, part):
    target = built_horovod.target
    lines = f"import sys; sys.path.insert(0, {str(MODULE.parent)!r})\nimport elastic_parts\n"
    gloo = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    command = [target.python, "-c", f"{lines}elastic_parts.{part}()"]
    run(command, env={**target.environment, **gloo}, timeout=60)
