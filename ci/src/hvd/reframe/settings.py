"""ReFrame's settings of every site: ``reframe -C ci/src/hvd/reframe/settings.py --system SITE``.

Made of the sites' files each time that ReFrame reads this one, which also registers the launch
methods of ``./hvd launch`` as ReFrame's launchers.
"""

from __future__ import annotations

import pathlib
import shlex
import sys
import types
from typing import Any, List, Optional

from reframe.core.backends import register_launcher
from reframe.core.exceptions import JobError
from reframe.core.launchers import JobLauncher

# at the end: after reading this file ReFrame removes a place that it counts from the front
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

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
site_configuration = systems.configuration()
