"""Read the trace that Horovod writes to the file that HOROVOD_TIMELINE names.

It is a list of events in Chrome's trace format, in which a process stands for a tensor: its
negotiation, with a mark for each rank that is ready, then its operation with activities in it.
Source: horovod/common/timeline.cc.  The list has no end if the job was killed.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, Dict, List, Tuple

from hvd.core.errors import HvdError
from hvd.core.paths import shorten

#: The prefix of every negotiation's phase.
NEGOTIATE = "NEGOTIATE_"
_SEPARATOR = re.compile(r"[\s,]*")
#: An event's end and the next one's beginning, as Horovod writes them.
_NEXT = re.compile(r'\}\s*,\s*\{\s*"(?:ph|name)"\s*:')
_HINT = "give the file that HOROVOD_TIMELINE named"


@dataclasses.dataclass(frozen=True)
class Span:
    """A time that a tensor spent in one phase, in seconds since Horovod began.

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
    """The ranks that a negotiation on a tensor names, and when each was ready, in seconds."""

    tensor: str
    ready: Tuple[Tuple[int, float], ...]


@dataclasses.dataclass(frozen=True)
class Open:
    """The phase of a tensor at the end of the trace, its start, and the ranks that were ready."""

    tensor: str
    phase: str
    start: float
    ready: Tuple[int, ...]


@dataclasses.dataclass
class Trace:
    """A whole trace.

    Args:
        spans: the times in phases, in the order of their ends.
        entered: phase, to how often it was entered.
        negotiations: those that ended.
        unfinished: what had not ended.
        elements: tensor, to its element type and shape, if the trace has them.
        truncated: the file ends before the list does.
        start, end: the first and the last event, in seconds since Horovod began.
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
        HvdError: it cannot be read, or is not a trace of Horovod; says where and why.
    """
    shown = shorten(path)
    try:
        text = path.read_text(errors="replace").strip()
    except OSError as error:
        raise HvdError(f"{shown}: {error.strerror}", _HINT) from error
    if not text:
        raise HvdError(
            f"{shown} is empty",
            "Horovod writes with the first operation; did the job get that far, and end?",
        )
    events, truncated = _events(text, shown)
    trace = _Builder().build(events, shown)
    trace.truncated = truncated
    if not any(phase.startswith(NEGOTIATE) for phase in trace.entered):
        raise HvdError(f"{shown}: no event is named {NEGOTIATE}..., as Horovod's are", _HINT)
    return trace


def _events(text: str, shown: str) -> Tuple[List[Any], bool]:
    """Return the events, and whether their list was cut off."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        if text.startswith("["):
            return _recovered(text, shown)
        raise HvdError(
            f"{shown} is not JSON: character {error.pos}: {error.msg}", _HINT
        ) from error
    # other programs save a trace as an object, Chrome's other form
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise HvdError(f"{shown}: neither it nor its key 'traceEvents' is a list", _HINT)
    return events, False


def _recovered(text: str, shown: str) -> Tuple[List[Any], bool]:
    """Return the whole events of a list that is cut off, which may have a comma at its end."""
    decode = json.JSONDecoder().raw_decode
    events: List[Any] = []
    position = 1
    while True:
        position = _SEPARATOR.match(text, position).end()
        try:
            event, end = decode(text, position)
        except json.JSONDecodeError as error:
            if not _NEXT.search(text, position):
                return events, text[position:] != "]"
            raise HvdError(
                f"{shown}: character {error.pos}: {error.msg}",
                "the file is damaged: cut it off there, or record another trace",
            ) from error
        events.append(event)
        position = end


@dataclasses.dataclass
class _Tensor:
    """The state of a tensor: its phases, the outermost first, and the ranks that are ready."""

    name: str
    phases: List[str] = dataclasses.field(default_factory=list)
    #: when it came into, or back to, the innermost phase
    since: float = 0.0
    ready: List[Tuple[int, float]] = dataclasses.field(default_factory=list)


class _Builder:
    """Replays the events in their order."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.tensors: Dict[int, _Tensor] = {}
        self.times: List[float] = []

    def build(self, events: List[Any], shown: str) -> Trace:
        for number, event in enumerate(events, 1):
            try:
                self._take(event)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise HvdError(
                    f"{shown}: event {number} is not one of Horovod's: {event}", _HINT
                ) from error
        if self.times:
            self.trace.start, self.trace.end = min(self.times), max(self.times)
        for tensor in self.tensors.values():
            if tensor.phases:
                ready = tuple(sorted(rank for rank, _ in tensor.ready))
                opened = Open(tensor.name, tensor.phases[-1], tensor.since, ready)
                self.trace.unfinished.append(opened)
                self._add_span(tensor, self.trace.end)
        return self.trace

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["ph"]
        if kind == "M":
            if event["name"] == "process_name" and "name" in event["args"]:
                self._tensor(event).name = event["args"]["name"]
            return
        time = float(event["ts"]) / 1e6
        self.times.append(time)
        if kind == "B":
            self._begin(self._tensor(event), time, event["name"])
        elif kind == "E":
            self._end(self._tensor(event), time, event.get("args", {}))
        elif kind == "X" and str(event["name"]).isdigit():
            self._tensor(event).ready.append((int(event["name"]), time))

    def _tensor(self, event: Dict[str, Any]) -> _Tensor:
        pid = event["pid"]
        return self.tensors.setdefault(pid, _Tensor(f"tensor {pid}"))

    def _begin(self, tensor: _Tensor, time: float, phase: str) -> None:
        if tensor.phases:
            self._add_span(tensor, time)
        else:
            tensor.ready = []
        tensor.phases.append(phase)
        tensor.since = time
        self.trace.entered[phase] = self.trace.entered.get(phase, 0) + 1

    def _end(self, tensor: _Tensor, time: float, arguments: Dict[str, Any]) -> None:
        if not tensor.phases:
            return  # it began before the trace did: hvd.start_timeline in mid-job
        self._add_span(tensor, time)
        phase = tensor.phases.pop()
        tensor.since = time
        if "shape" in arguments:
            elements = f"{arguments.get('dtype', '')} {arguments['shape']}"
            self.trace.elements[tensor.name] = elements.strip()
        if phase.startswith(NEGOTIATE):
            self.trace.negotiations.append(Negotiation(tensor.name, tuple(tensor.ready)))

    def _add_span(self, tensor: _Tensor, end: float) -> None:
        """Add the time up to ``end`` in the innermost phase."""
        if end > tensor.since:
            self.trace.spans.append(Span(tensor.name, tensor.phases[-1], tensor.since, end))
