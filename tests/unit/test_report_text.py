"""Durations, sizes and links as the report spells them."""

from __future__ import annotations

import pytest

from hvd.report import text


@pytest.mark.parametrize(
    "seconds, expected",
    [
        (0, "0 µs"),
        (1.3e-6, "1.30 µs"),
        (0.000999, "999 µs"),
        (0.0009999, "1.00 ms"),
        (0.0109, "10.9 ms"),
        (0.9999, "1.00 s"),
        (9.999, "10.0 s"),
        (59.96, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (5025, "1 h 23 min"),
    ],
)
def test_durations(seconds, expected):
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    "number, expected",
    [(0.00079, "0.000790"), (1.024, "1.02"), (9.996, "10.0"), (99.96, "100"), (3858.7, "3859")],
)
def test_figures(number, expected):
    assert text.figures(number) == expected


@pytest.mark.parametrize(
    "count, expected", [(4, "4 B"), (1536, "1.5 KiB"), (64 * 2**20, "64 MiB")]
)
def test_sizes(count, expected):
    assert text.size(count) == expected


def test_links_are_relative_to_what_is_archived_together(tmp_path):
    reports = tmp_path / "reports" / "local-hvd"
    inside, beside = str(reports / "a log"), str(tmp_path / "logs" / "a")
    assert text.link(inside, reports) == "[a log](a%20log)"
    assert text.link("a.log", reports) == "[a.log](a.log)"
    assert text.relative(beside, reports) == "../../logs/a"
    assert text.relative("/elsewhere/a", reports) == "/elsewhere/a"
