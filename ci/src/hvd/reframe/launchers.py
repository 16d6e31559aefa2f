"""The launch methods of ``./hvd launch`` as ReFrame's launchers, jsrun among them."""

from __future__ import annotations

import functools
import shlex
import types
from typing import Any, List, Optional

from reframe.core.backends import register_launcher
from reframe.core.exceptions import JobError
from reframe.core.launchers import JobLauncher

from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import Request
from hvd.reframe import systems


class SiteLauncher(JobLauncher):
    """The line that a site's file makes for a launch.

    Attributes:
        request: the launch; of a check that is not ours, set it before the job is submitted:
            ``self.job.launcher.request = ...``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.request: Optional[Request] = None

    def command(self, job: Any) -> List[str]:
        """The words up to the program.

        Raises:
            JobError: they cannot be made; says why.
        """
        if self.request is None:
            raise JobError("the launcher has no request: set self.job.launcher.request")
        try:
            method = methods.choose(self.request)
            return [shlex.quote(word) for word in method.words(self.request, script=True)]
        except HvdError as error:
            raise JobError(f"{error.message}; {error.remedy}") from error


@functools.cache
def register() -> None:
    """Make every launch method known to ReFrame, once."""
    for name in methods.METHODS:
        register_launcher(systems.launcher(name))(types.new_class("Registered", (SiteLauncher,)))
