"""ReFrame's settings of every site: ``reframe -C ci/src/hvd/reframe/settings.py --system SITE``.

Made anew of the sites' files each time that ReFrame reads this one.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from hvd.reframe import launchers, systems

launchers.register()
site_configuration = systems.configuration()
