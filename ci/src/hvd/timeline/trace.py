"""Read the trace that Horovod writes to the file that HOROVOD_TIMELINE names.

It is a list of events in Chrome's trace format, in which a process stands for a tensor: its
negotiation, with a mark for each rank that is ready, then its operation with activities in it.
Source: horovod/common/timeline.cc.  The list has no end if the job was killed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Tuple

from hvd.core.errors import HvdError
from hvd.core.paths import shorten

#: The prefix of every negotiation's phase.
NEGOTIATE = "NEGOTIATE_"
#: An event's end and the next one's beginning, as Horovod writes them.
_NEXT = re.compile(r'\}\s*,\s*\{\s*"(?:ph|name)"\s*:')
_HINT = "give the file that HOROVOD_TIMELINE named"


class Span(NamedTuple):
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


@dataclasses.dataclass
class Tensor:
    """The state of a tensor: its phases, the outermost first.

    Args:
        since: when it came into, or back to, the innermost phase, in seconds.
        ready: by rank, when the rank was ready for the operation, in seconds.
    """

    name: str
    phases: List[str] = dataclasses.field(default_factory=list)
    since: float = 0.0
    ready: Dict[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Trace:
    """A whole trace.

    Args:
        truncated: the file ends before the list does.
        spans: the times in phases, in the order of their ends.
        entered: phase, to how often it was entered.
        negotiations: those that ended: the tensor, and by rank when it was ready, in seconds.
        unfinished: the tensors in an operation at the end.
        elements: tensor, to its element type and shape, if the trace has them.
        start, end: the first and the last event, in seconds since Horovod began.
    """

    truncated: bool = False
    spans: List[Span] = dataclasses.field(default_factory=list)
    entered: Dict[str, int] = dataclasses.field(default_factory=dict)
    negotiations: List[Tuple[str, Dict[int, float]]] = dataclasses.field(default_factory=list)
    unfinished: List[Tensor] = dataclasses.field(default_factory=list)
    elements: Dict[str, str] = dataclasses.field(default_factory=dict)
    start: float = math.inf
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
    trace = Trace(truncated)
    tensors: Dict[int, Tensor] = {}
    for number, event in enumerate(events, 1):
        try:
            _replay(event, trace, tensors)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HvdError(
                f"{shown}: event {number} is not one of Horovod's: {event}", _HINT
            ) from error
    if not any(phase.startswith(NEGOTIATE) for phase in trace.entered):
        raise HvdError(f"{shown}: no event is named {NEGOTIATE}..., as Horovod's are", _HINT)
    trace.unfinished = [tensor for tensor in tensors.values() if tensor.phases]
    for tensor in trace.unfinished:
        _add_span(trace, tensor, trace.end)
    return trace


def _events(text: str, shown: str) -> Tuple[List[Any], bool]:
    """Return the events, and whether their list was cut off."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        if not text.startswith("["):
            place = f"{shown} is not JSON: character {error.pos}: {error.msg}"
            raise HvdError(place, _HINT) from error
        if _NEXT.search(text, error.pos):
            raise HvdError(
                f"{shown}: character {error.pos}: {error.msg}",
                "the file is damaged: cut it off there, or record another trace",
            ) from error
        return _recovered(text)
    # other programs save a trace as an object, Chrome's other form
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise HvdError(f"{shown}: neither it nor its key 'traceEvents' is a list", _HINT)
    return events, False


def _recovered(text: str) -> Tuple[List[Any], bool]:
    """Return the whole events of a list that is cut off, which may have a comma at its end."""
    end = len(text)
    while (end := text.rfind("}", 0, end)) > 0:
        try:
            events = json.loads(text[: end + 1] + "]")
        except json.JSONDecodeError:  # within the event that is cut off
            continue
        return events, text[end + 1 :].strip(" ,\n\t") != "]"
    return [], True


def _replay(event: Dict[str, Any], trace: Trace, tensors: Dict[int, Tensor]) -> None:
    """Add an event to the trace and to the state of its tensor."""
    kind = event["ph"]
    time = 0.0
    if kind != "M":
        time = float(event["ts"]) / 1e6
        trace.start, trace.end = min(trace.start, time), max(trace.end, time)
    if kind not in ("M", "B", "E", "X"):
        return
    pid = event["pid"]
    tensor = tensors.setdefault(pid, Tensor(f"tensor {pid}"))
    if kind == "M":
        if event["name"] == "process_name":
            tensor.name = event["args"].get("name", tensor.name)
    elif kind == "X":
        if str(event["name"]).isdigit():
            tensor.ready[int(event["name"])] = time
    elif kind == "B":
        phase = event["name"]
        if not tensor.phases:
            tensor.ready = {}
        _add_span(trace, tensor, time)
        tensor.phases.append(phase)
        tensor.since = time
        trace.entered[phase] = trace.entered.get(phase, 0) + 1
    elif tensor.phases:  # else it began before the trace did: hvd.start_timeline in mid-job
        _add_span(trace, tensor, time)
        phase = tensor.phases.pop()
        tensor.since = time
        arguments = event.get("args", {})
        if "shape" in arguments:
            elements = f"{arguments.get('dtype', '')} {arguments['shape']}"
            trace.elements[tensor.name] = elements.strip()
        if phase.startswith(NEGOTIATE):
            trace.negotiations.append((tensor.name, tensor.ready))


def _add_span(trace: Trace, tensor: Tensor, end: float) -> None:
    """Add the time up to ``end`` in the innermost phase, if there is one."""
    if tensor.phases and end > tensor.since:
        trace.spans.append(Span(tensor.name, tensor.phases[-1], tensor.since, end))
