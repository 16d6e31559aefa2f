"""./hvd matrix --list: every cell, and what is known of it."""

from __future__ import annotations

import pytest

from hvd.cli import matrix as command
from hvd.matrix import definition, result
from hvd.matrix.needs import Needs
from tests import matrix as made

asked = definition.load()
needs = Needs(asked, made.HERE)


def kept(came, *, stale=False, **values):
    of = made.cell(**values)
    inputs = "of other patches" if stale else needs.inputs(of)
    return made.result(came, of, spec=needs.concrete(of.values), inputs=inputs)


@pytest.mark.parametrize(
    "earlier, said",
    [
        (kept("passed"), "passed"),
        (kept("failed"), "failed"),
        (kept("passed", stale=True), "passed, stale"),
        (kept("skipped"), "skipped"),
        (kept("passed", compiler="gcc-14"), "skipped; last result passed  g++-14 is not on PATH"),
        (
            kept("passed", compiler="gcc-14", engine="spack-1.2", stale=True),
            "skipped; last result passed, stale  g++-14 is not on PATH",
        ),
    ],
)
def test_a_result_is_shown_also_if_the_cell_cannot_be_tried_here(earlier, said, monkeypatch, hvd):
    monkeypatch.setattr(command.here, "look", lambda *_: made.HERE)
    monkeypatch.setattr(result, "load_all", lambda: [earlier])
    status, out, _ = hvd("matrix", "--list")
    lines = out.splitlines()
    assert status == 0
    assert f"{earlier.cell.id}: {said}" in lines
    assert any(line.endswith(": not tried") for line in lines)
