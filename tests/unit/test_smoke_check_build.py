"""Parsing `horovodrun --check-build` and comparing it with an expectation."""

from __future__ import annotations

import dataclasses

import pytest

from hvd.model.check_build import CheckBuildError, Expectation, differences, parse, table

TEXT = """$ horovodrun --check-build --verbose
Checking whether extension tensorflow was built.
ImportError: Extension horovod.tensorflow has not been built: mpi_lib.so not found
Extension tensorflow was NOT built.

Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [ ] Gloo

Available Tensor Operations:
    [X] NCCL
    [ ] DDL
    [ ] CCL
    [X] MPI
    [ ] Gloo    \n"""

EXPECTED = Expectation(
    version="0.28.1",
    frameworks=frozenset({"pytorch"}),
    controllers=frozenset({"mpi"}),
    operations=frozenset({"nccl", "mpi"}),
)


def test_parse_reads_every_item() -> None:
    report = parse(TEXT)
    assert report.version == "0.28.1"
    assert report.frameworks == {"tensorflow": False, "pytorch": True, "mxnet": False}
    assert report.controllers == {"mpi": True, "gloo": False}
    built = {name for name, built in report.operations.items() if built}
    assert (built, len(report.operations)) == ({"nccl", "mpi"}, 5)


def test_pytorch_without_its_plugin_is_not_built_whatever_is_listed() -> None:
    """`horovod.torch` of 0.22 and later can be imported without it, and is then listed."""
    said = (
        "Checking whether extension torch was built.\n"
        "Extension horovod.torch has not been built: mpi_lib_v2.so not found\n"
        "Extension torch was built.\n"
    )
    (difference,) = differences(parse(said + TEXT), EXPECTED)
    assert difference == "frameworks: expected pytorch, but it is not built"


@pytest.mark.parametrize(
    "change, difference",
    [
        ({}, ""),
        ({"version": "0.28.0"}, "version: expected Horovod 0.28.0, got 0.28.1"),
        (
            {"frameworks": frozenset({"pytorch", "tensorflow"})},
            "frameworks: expected tensorflow, but it is not built",
        ),
        ({"frameworks": frozenset()}, "frameworks: pytorch is built, but not expected"),
        (
            {"controllers": frozenset({"mpi", "gloo"})},
            "controllers: expected gloo, but it is not built",
        ),
        ({"operations": frozenset({"mpi"})}, "operations: nccl is built, but not expected"),
        (
            {"operations": frozenset({"mpi", "nccl", "mlsl"})},
            "operations: expected mlsl, which this Horovod does not list",
        ),
    ],
)
def test_each_difference_is_named(change: dict, difference: str) -> None:
    expected = dataclasses.replace(EXPECTED, **change)
    assert differences(parse(TEXT), expected) == ([difference] if difference else [])


def test_table_has_a_row_per_item() -> None:
    rows = table(parse(TEXT), EXPECTED)
    version = {"section": "version", "item": "horovod", "expected": "0.28.1", "built": "0.28.1"}
    assert rows[0] == version
    assert {"section": "operations", "item": "ccl", "expected": False, "built": False} in rows
    assert len(rows) == 1 + 3 + 2 + 5


@pytest.mark.parametrize(
    "text, message",
    [
        ("bash: horovodrun: No such file or directory\n", "names no Horovod version"),
        (TEXT[: TEXT.index("Available Tensor")], "has no 'Available Tensor Operations'"),
        (TEXT.replace("Available Controllers:", ""), "has no 'Available Controllers'"),
    ],
)
def test_incomplete_text_is_an_error(text: str, message: str) -> None:
    with pytest.raises(CheckBuildError, match=message):
        parse(text)
