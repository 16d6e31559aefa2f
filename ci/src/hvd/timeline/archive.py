"""A trace as an OTF2 archive, for Vampir and otf2-print: a process with a row for each tensor."""

from __future__ import annotations

import itertools
import pathlib

from hvd.core.errors import HvdError
from hvd.core.paths import shorten
from hvd.timeline.trace import Trace

#: Ticks per second.
_RESOLUTION = 10**9


def write(trace: Trace, directory: pathlib.Path) -> None:
    """Write the archive ``directory``/traces.otf2; tensors enter and leave their phases.

    Raises:
        HvdError: ``directory`` is there already.
    """
    # ./hvd installs it for --otf2 only
    import otf2

    if directory.exists():
        raise HvdError(f"--otf2: {shorten(directory)} exists", "remove or rename it")
    with otf2.writer.open(str(directory), timer_resolution=_RESOLUTION) as archive:
        definitions = archive.definitions
        process = definitions.location_group(
            "Horovod, as rank 0 saw it",
            system_tree_parent=definitions.system_tree_node("job"),
        )
        regions = {phase: definitions.region(phase) for phase in trace.entered}
        spans = sorted(trace.spans, key=lambda span: (span.tensor, span.start))
        for tensor, phases in itertools.groupby(spans, key=lambda span: span.tensor):
            row = archive.event_writer(tensor, group=process)
            for span in phases:
                row.enter(round(span.start * _RESOLUTION), regions[span.phase])
                row.leave(round(span.end * _RESOLUTION), regions[span.phase])
