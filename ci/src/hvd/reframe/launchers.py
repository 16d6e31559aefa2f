"""The launch methods of ``./hvd launch`` as ReFrame's launchers; importing this registers them."""

from __future__ import annotations

import shlex
import types
from typing import Any, List, Optional

from reframe.core.backends import register_launcher
from reframe.core.exceptions import JobError
from reframe.core.launchers import JobLauncher

from hvd.core.errors import HvdError
from hvd.launch import methods
from hvd.launch.request import Request
from hvd.model import site
from hvd.reframe import systems


class SiteLauncher(JobLauncher):
    """The launcher of a site, with the options of its ``site.yaml``.

    A check has to set ``self.job.launcher.request`` before its job is submitted.
    """

    request: Optional[Request] = None

    def command(self, job: Any) -> List[str]:
        """Return the words up to the program."""
        if self.request is None:
            raise JobError("the launcher has no request: set self.job.launcher.request")
        try:
            return [shlex.quote(word) for word in methods.words(self.request, script=True)]
        except HvdError as error:
            raise JobError(f"{error.message}; {error.remedy}") from error


for _name in site.launchers().methods:
    register_launcher(systems.launcher(_name))(types.new_class("Registered", (SiteLauncher,)))
