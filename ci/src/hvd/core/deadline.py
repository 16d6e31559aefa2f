"""A time limit for a block of work, whatever it does when the time is up."""

from __future__ import annotations

import contextlib
import signal
from typing import Iterator


class OutOfTime(Exception):
    """The time limit was reached.

    No `HvdError`: that ends one check, and the next would begin.
    """


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """End the block after that many seconds; only in the main thread, see setitimer(2).

    Raises:
        OutOfTime: it was not over by then.
    """

    def expire(*_: object) -> None:
        raise OutOfTime(f"the time limit of {seconds:g} s was reached")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
