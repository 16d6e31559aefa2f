"""Print as JSON what the active Spack environment will fetch; run by ``spack python``."""

import json

import spack.environment
import spack.fetch_strategy
from spack.mirrors.layout import default_mirror_layout

sources = []
for spec in spack.environment.active_environment().all_specs():
    if spec.external or spec.installed or not spec.package.has_code:
        continue
    fetcher = spack.fetch_strategy.for_package_version(spec.package)
    layout = default_mirror_layout(fetcher, f"{spec.name}/{spec.name}-{spec.version}", spec)
    sources.append(
        {
            "name": spec.name,
            "version": str(spec.version),
            "url": getattr(fetcher, "url", None) or "",
            "sha256": getattr(fetcher, "digest", None) or "",
            "path": layout.path,
        }
    )
print(json.dumps(sources))
