"""Read the trace that Horovod writes where HOROVOD_TIMELINE says.

It is a list of events of Chrome's trace format, in which each tensor stands as a process: first
its negotiation, with a mark when a rank is ready, then its operation with activities in it.
Source: horovod/common/timeline.cc.  The list has no end where a job was killed.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, Tuple

from hvd.core.errors import HvdError
from hvd.core.paths import shorten

#: What every negotiation's phase begins with.
NEGOTIATE = "NEGOTIATE_"
_SEPARATOR = re.compile(r"[\s,]*")
#: An event's end and the next one's beginning, as Horovod writes them.
_NEXT = re.compile(r'\}\s*,\s*\{\s*"(?:ph|name)"\s*:')
_REMEDY = "give the file that HOROVOD_TIMELINE named"


@dataclasses.dataclass(frozen=True)
class Span:
    """A time that a tensor spent in one phase; times are seconds since Horovod began.

    A tensor is in one phase at a time: an operation's own span leaves out its activities.
    """

    tensor: str
    phase: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclasses.dataclass(frozen=True)
class Negotiation:
    """When each rank was ready for an operation on a tensor, as far as it is known."""

    tensor: str
    start: float
    ready: Tuple[Tuple[int, float], ...]


@dataclasses.dataclass(frozen=True)
class Open:
    """What a tensor was in when the trace ended, since when, and which ranks were ready."""

    tensor: str
    phase: str
    start: float
    ready: Tuple[int, ...]


@dataclasses.dataclass
class Trace:
    """A whole trace.

    Args:
        spans: what the tensors were in, in the order of their ends.
        entered: how often each phase was entered.
        negotiations: those that ended.
        unfinished: what had not ended.
        elements: element type and shape, by tensor, where the trace says so.
        truncated: whether the file ends before the list does.
        start, end: seconds since Horovod began: the first and the last event.
    """

    spans: List[Span] = dataclasses.field(default_factory=list)
    entered: Dict[str, int] = dataclasses.field(default_factory=dict)
    negotiations: List[Negotiation] = dataclasses.field(default_factory=list)
    unfinished: List[Open] = dataclasses.field(default_factory=list)
    elements: Dict[str, str] = dataclasses.field(default_factory=dict)
    truncated: bool = False
    start: float = 0.0
    end: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


def read(path: pathlib.Path) -> Trace:
    """Read the trace in the file ``path``.

    Raises:
        HvdError: it cannot be read, or is no trace of Horovod; says where and why.
    """
    shown = shorten(path)
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise HvdError(f"{shown}: {error.strerror}", _REMEDY) from error
    if not text.strip():
        raise HvdError(
            f"{shown} is empty",
            "Horovod writes with the first operation; did the job get that far, and end?",
        )
    events, truncated = _events(text, shown)
    trace = _Builder().build(events, shown)
    trace.truncated = truncated
    if not any(phase.startswith(NEGOTIATE) for phase in trace.entered):
        raise HvdError(f"{shown}: there is no {NEGOTIATE}... in it, as Horovod's have", _REMEDY)
    return trace


def _events(text: str, shown: str) -> Tuple[List[Dict[str, Any]], bool]:
    """The events, and whether the list was cut off."""
    position = _SEPARATOR.match(text).end()
    if text[position] == "{":
        return _of_object(text, shown), False
    if text[position] != "[":
        raise HvdError(f"{shown} does not begin with '[', as a trace does", _REMEDY)
    decode = json.JSONDecoder().raw_decode
    events: List[Dict[str, Any]] = []
    position += 1
    while True:
        position = _SEPARATOR.match(text, position).end()
        if position == len(text):
            return events, True
        if text[position] == "]":
            return events, False
        try:
            event, end = decode(text, position)
        except json.JSONDecodeError as error:
            if not _NEXT.search(text, position):
                return events, True
            raise HvdError(
                f"{shown}: character {error.pos}: {error.msg}",
                "the file is damaged: cut it off there, or take the trace anew",
            ) from error
        if not isinstance(event, dict):
            raise HvdError(f"{shown}: character {position}: no event, but {event!r}", _REMEDY)
        events.append(event)
        position = end


def _of_object(text: str, shown: str) -> List[Dict[str, Any]]:
    """The events of Chrome's other form, in which other programs save a trace."""
    try:
        events = json.loads(text).get("traceEvents")
    except json.JSONDecodeError as error:
        raise HvdError(f"{shown}: character {error.pos}: {error.msg}", _REMEDY) from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise HvdError(f"{shown}: key 'traceEvents' is not a list of events", _REMEDY)
    return events


class _Builder:
    """Goes through the events in their order."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.names: Dict[int, str] = {}
        # by tensor: what it is in, the outermost first, and since when it is in the innermost
        self.stacks: Dict[int, List[str]] = {}
        self.since: Dict[int, float] = {}
        self.ready: Dict[int, List[Tuple[int, float]]] = {}
        self.began: Dict[int, float] = {}

    def build(self, events: List[Dict[str, Any]], shown: str) -> Trace:
        times = []
        for number, event in enumerate(events, 1):
            try:
                self._take(event)
                if "ts" in event:
                    times.append(float(event["ts"]) / 1e6)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise HvdError(
                    f"{shown}: event {number} is not one of Horovod's: {event}", _REMEDY
                ) from error
        if times:
            self.trace.start, self.trace.end = min(times), max(times)
        self.trace.unfinished = list(self._open())
        for each in self.trace.unfinished:
            self._span(each.tensor, each.phase, each.start, self.trace.end)
        return self.trace

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["ph"]
        if kind == "M":
            if event["name"] == "process_name" and "name" in event["args"]:
                self.names[event["pid"]] = event["args"]["name"]
        elif kind in ("B", "E", "X"):
            time = float(event["ts"]) / 1e6
            {"B": self._begin, "E": self._end, "X": self._mark}[kind](event["pid"], time, event)

    def _begin(self, pid: int, time: float, event: Dict[str, Any]) -> None:
        stack = self.stacks.setdefault(pid, [])
        if stack:
            self._span(self._name(pid), stack[-1], self.since[pid], time)
        else:
            self.ready[pid] = []
            self.began[pid] = time
        phase = event["name"]
        stack.append(phase)
        self.since[pid] = time
        self.trace.entered[phase] = self.trace.entered.get(phase, 0) + 1

    def _end(self, pid: int, time: float, event: Dict[str, Any]) -> None:
        stack = self.stacks.get(pid)
        if not stack:
            return  # it began before the trace did: hvd.start_timeline in mid-job
        phase = stack.pop()
        self._span(self._name(pid), phase, self.since[pid], time)
        self.since[pid] = time
        arguments = event.get("args", {})
        if "shape" in arguments:
            kind = f"{arguments.get('dtype', '')} {arguments['shape']}"
            self.trace.elements[self._name(pid)] = kind.strip()
        if phase.startswith(NEGOTIATE):
            ready = tuple(self.ready[pid])
            self.trace.negotiations.append(Negotiation(self._name(pid), self.began[pid], ready))

    def _mark(self, pid: int, time: float, event: Dict[str, Any]) -> None:
        """A rank is ready."""
        if self.stacks.get(pid) and str(event["name"]).isdigit():
            self.ready[pid].append((int(event["name"]), time))

    def _span(self, tensor: str, phase: str, start: float, end: float) -> None:
        if end > start:
            self.trace.spans.append(Span(tensor, phase, start, end))

    def _open(self) -> Iterator[Open]:
        for pid, stack in self.stacks.items():
            if stack:
                ranks = tuple(sorted(rank for rank, _ in self.ready[pid]))
                yield Open(self._name(pid), stack[-1], self.since[pid], ranks)

    def _name(self, pid: int) -> str:
        return self.names.get(pid, f"tensor {pid}")
