"""ReFrame's settings of every site: ``reframe -C ci/src/hvd/reframe/settings.py --system SITE``.

Made of the sites' files each time that ReFrame reads this one.
"""

import pathlib
import sys

# at the end: after reading this file ReFrame removes a place that it counts from the front
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from hvd.reframe import launchers, systems  # noqa: F401

site_configuration = systems.configuration()
