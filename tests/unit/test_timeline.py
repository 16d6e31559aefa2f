"""`./hvd timeline`: traces as Horovod writes them, whole, cut off, damaged, and others'."""

import json
import random

import numpy as np
import otf2
import pytest

from hvd.cli import timeline
from hvd.core.errors import HvdError
from hvd.timeline import archive, picture, tables, totals, trace
from hvd.timeline.trace import Span

#: Two ranks reduce a and b, fused; rank 1 is late by 3 ms, and for b never comes again.
EVENTS = [
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1}},
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.a"}},
    {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1000, "pid": 1},
    {"ph": "X", "name": "0", "ts": 1000, "pid": 1, "dur": 0},
    {"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "grad.b"}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 2000, "pid": 2},
    {"ph": "X", "name": "0", "ts": 2000, "pid": 2, "dur": 0},
    {"ph": "X", "name": "1", "ts": 4000, "pid": 1, "dur": 0},
    {"ph": "E", "ts": 4000, "pid": 1},
    {"ph": "X", "name": "1", "ts": 4000, "pid": 2, "dur": 0},
    {"ph": "E", "ts": 4000, "pid": 2},
    {"ph": "i", "name": "CYCLE_START", "ts": 4500, "s": "g"},
    {"ph": "B", "name": "ALLREDUCE", "ts": 5000, "pid": 1},
    {"ph": "B", "name": "ALLREDUCE", "ts": 5000, "pid": 2},
    {"ph": "B", "name": "MPI_ALLREDUCE", "ts": 6000, "pid": 1},
    {"ph": "B", "name": "MPI_ALLREDUCE", "ts": 6000, "pid": 2},
    {"ph": "E", "ts": 9000, "pid": 1},
    {"ph": "E", "ts": 9000, "pid": 2},
    {"ph": "E", "ts": 10000, "pid": 1, "args": {"dtype": "float32", "shape": "[3, 4]"}},
    {"ph": "E", "ts": 10000, "pid": 2, "args": {"dtype": "float32", "shape": "[4]"}},
]
HANGS = [
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 11000, "pid": 2},
    {"ph": "X", "name": "0", "ts": 11000, "pid": 2, "dur": 0},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 12000, "pid": 1},
]


def written(events):
    """As timeline.cc does it: a line each for names, and the others behind each other."""
    text = "[\n"
    for event in events:
        text += json.dumps(event) + (",\n" if event["ph"] == "M" else ",")
    return text[:-1] + "]"


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        path = tmp_path / "trace.json"
        path.write_text(text)
        return trace.read(path)

    return from_text


def test_phases_tensors_and_ranks_add_up(read):
    found = read(written(EVENTS))
    assert not found.truncated and not found.unfinished
    # seconds: wall time, in which both tensors count once, and the sum of both
    expected = {
        ("NEGOTIATE_ALLREDUCE", "waiting", 0.003, 0.005, 2),
        ("MPI_ALLREDUCE", "network", 0.003, 0.006, 2),
        # without the activity in it
        ("ALLREDUCE", "rest", 0.002, 0.004, 2),
    }
    rounded = [
        (*p[:2], round(p.wall, 6), round(p.tensors, 6), p.entered) for p in totals.phases(found)
    ]
    assert set(rounded) == expected
    seconds = {tensor.name: tensor.seconds for tensor in totals.tensors(found)}
    assert seconds == {"grad.a": pytest.approx(0.008), "grad.b": pytest.approx(0.007)}
    assert found.elements == {"grad.a": "float32 [3, 4]", "grad.b": "float32 [4]"}
    # the rank that others wait for
    assert totals.ranks(found) == [(1, 2, pytest.approx(0.005))]


def test_an_otf2_archive_has_every_span(read, tmp_path):
    """Read back by OTF2's own reader."""
    found = read(written(EVENTS + HANGS))
    archive.write(found, tmp_path / "otf2")
    entered, spans = {}, []
    with otf2.reader.open(str(tmp_path / "otf2" / "traces.otf2")) as opened:
        second = opened.timer_resolution
        for row, event in opened.events:
            if isinstance(event, otf2.events.Enter):
                assert row.name not in entered
                entered[row.name] = event.time
            else:
                times = (entered.pop(row.name) / second, event.time / second)
                spans.append(Span(row.name, event.region.name, *map(pytest.approx, times)))
    assert not entered and sorted(spans, key=str) == sorted(found.spans, key=str)
    with pytest.raises(HvdError):
        archive.write(found, tmp_path / "otf2")


def test_what_a_killed_job_was_in_is_told(read):
    found = read(written(EVENTS + HANGS))
    lines = tables.unfinished(found)
    assert lines[0] == (
        "in progress at the end: grad.b, NEGOTIATE_ALLREDUCE since 11.0 ms; not ready: rank 1"
    )
    # no rank has a mark there: Horovod knew the answer, and nobody knows who was missing
    assert lines[1].endswith("grad.a, NEGOTIATE_ALLREDUCE since 12.0 ms")


def test_a_trace_may_be_cut_off_anywhere(read):
    """A killed job leaves what was in the file's buffer, up to any character."""
    whole = written(EVENTS)
    first = whole.index("NEGOTIATE_") + len('NEGOTIATE_ALLREDUCE", "ts": 1000, "pid": 1}')
    counts = []
    for length in range(first, len(whole)):
        found = read(whole[:length])
        assert found.truncated, length
        counts.append(len(found.spans))
    assert counts == sorted(counts) and counts[-1] == len(read(whole).spans)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("hello", "character 0"),
        ("[1, 2]", "event 1"),
        ("[]", "NEGOTIATE_"),
        ("3", "traceEvents"),
        ('{"traceEvents": 3}', "traceEvents"),
        ('{"schemaVersion": 1', "character 19"),
        ('[{"ph": "B", "ts": 1, "pid": 1}]', "event 1"),
        ('[{"ph": "B", "name": "x", "ts": "y", "pid": 1}]', "event 1"),
        ('[{"ph": "X", "name": "aten::mm", "ts": 1, "pid": 1}]', "NEGOTIATE_"),
        # a quotation mark in a tensor's name, which Horovod does not escape
        ('[{"name": "a"b"},{"ph": "E", "ts": 1, "pid": 1}]', "character 13"),
    ],
)
def test_a_bad_trace_is_named_with_the_place(read, text, place):
    with pytest.raises(HvdError) as raised:
        read(text)
    assert "trace.json" in raised.value.message and place in raised.value.message
    assert raised.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        # as another program saves it
        json.dumps({"traceEvents": EVENTS, "displayTimeUnit": "ms"}),
        written(EVENTS)[:-1] + ",]",
        # an operation that began before the trace did: hvd.start_timeline in mid-job
        written([{"ph": "E", "ts": 500, "pid": 7}, *EVENTS]),
    ],
    ids=["object", "comma", "began before"],
)
def test_a_trace_in_another_form_is_the_same(read, text):
    found, usual = read(text), read(written(EVENTS))
    assert not found.truncated
    assert (found.spans, found.negotiations) == (usual.spans, usual.negotiations)


def test_unions_and_bins_are_those_of_a_plain_count():
    choose = random.Random(5)
    spans = []
    for _ in range(60):
        start = choose.randrange(100)
        spans.append(Span("t", "p", start, start + 1 + choose.randrange(20)))
    moments = [sum(s.start <= t < s.end for s in spans) for t in range(130)]
    assert totals.union(spans) == sum(count > 0 for count in moments)
    got = totals.in_flight(spans, np.arange(131.0))
    assert np.allclose(got, moments)


@pytest.mark.parametrize(("format", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture_is_the_same_for_the_same_trace(read, format, magic):
    events = EVENTS + HANGS
    for number in range(8):  # more phases than colours
        begin = 20000 + 100 * number
        events.append({"ph": "B", "name": f"NCCL_{number}", "ts": begin, "pid": 3})
        events.append({"ph": "E", "ts": begin + 50, "pid": 3})
    found = read(written(events))
    drawn = picture.draw(found, "a $title$", format, 10)
    assert drawn.startswith(magic) and drawn == picture.draw(found, "a $title$", format, 10)


def test_the_command_writes_tables_and_a_picture(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text(written(EVENTS + HANGS)[:-1])
    timeline.timeline(path, None, 10, True)
    output = capsys.readouterr()
    assert "is cut off" in output.err
    for text in ("NEGOTIATE_ALLREDUCE", "waiting", "grad.b", "not ready: rank 1"):
        assert text in output.out
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "message"), [("trace.gif", "ends in none"), ("file/trace.png", "cannot write")]
)
def test_an_output_that_cannot_be_is_one_clear_error(tmp_path, name, message):
    path = tmp_path / "trace.json"
    path.write_text(written(EVENTS))
    (tmp_path / "file").write_text("")
    with pytest.raises(HvdError, match=message):
        timeline.timeline(path, tmp_path / name, 10, False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "trace.json"]
