"""Print as JSON what the active Spack environment will fetch; run by ``spack python``.

With the argument ``all``, what it would fetch if nothing of it were installed.
"""

import json
import sys

import spack.environment
import spack.fetch_strategy
from spack.mirrors.layout import default_mirror_layout

EVERY = sys.argv[1:] == ["all"]


def wanted(roots):
    """Return the specs to build for ``roots``, without those that only build what is installed."""
    found, seen, stack = [], set(), list(roots)
    while stack:
        spec = stack.pop()
        if spec.dag_hash() in seen or spec.external:
            continue
        seen.add(spec.dag_hash())
        if spec.installed and not EVERY:
            stack += spec.dependencies(deptype=("link", "run"))
        else:
            found.append(spec)
            stack += spec.dependencies()
    return sorted(found)


sources = []
for spec in wanted(spack.environment.active_environment().concrete_roots()):
    if not spec.package.has_code:
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
