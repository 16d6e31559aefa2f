"""What py-horovod of the active environment is built with; run by ``spack python``, prints JSON.

As Spack does before a build, but without installing what it depends on.
"""

import json

import spack.environment
from spack.util.environment import EnvironmentModifications

(root,) = [
    spec
    for spec in spack.environment.active_environment().concrete_roots()
    if spec.name == "py-horovod"
]
package = root.package
package.module.make_jobs = 2
modifications = EnvironmentModifications()
package.setup_build_environment(modifications)
variables = {}
modifications.apply_modifications(variables)
print(
    json.dumps(
        {
            "variables": variables,
            "flags": package.flag_handler("ldlibs", [])[0],
            # after `spack gc`: what only a build needs is gone
            "modules": list(root.copy(deps=("link", "run")).package.import_modules),
        }
    )
)
