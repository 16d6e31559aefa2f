"""Print as JSON where the active environment's packages come from; run by ``spack python``."""

import json
import os

import spack.environment
import spack.error
import spack.fetch_strategy
import spack.store
from spack import traverse


def source(spec):
    """Address and checksum of the source; empty where it has none, or none with a checksum."""
    if spec.external or not spec.package.has_code:
        return {}
    try:
        fetcher = spack.fetch_strategy.for_package_version(spec.package)
    except spack.error.SpackError:
        return {}
    return {
        "url": getattr(fetcher, "url", None) or "",
        "sha256": getattr(fetcher, "digest", None) or "",
        "commit": getattr(fetcher, "commit", None) or "",
    }


def licence(spec):
    """As the recipe states it, an SPDX expression; empty where it states none."""
    stated = getattr(spec.package, "licenses", {})
    return " OR ".join(text for when, text in stated.items() if spec.satisfies(when))


def own_bom(spec):
    """The bill of materials that Spack 1.2 leaves in a prefix."""
    if spec.external or not spec.installed:
        return ""
    directory = os.path.join(spack.store.STORE.layout.metadata_path(spec), "sbom")
    files = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return os.path.join(directory, files[0]) if files else ""


parts = []
roots = spack.environment.active_environment().concrete_roots()
runs = {
    spec.dag_hash()
    for spec in traverse.traverse_nodes(roots, deptype=("link", "run"), key=traverse.by_dag_hash)
}
for spec in traverse.traverse_nodes(roots, deptype="all", key=traverse.by_dag_hash):
    parts.append(
        {
            "hash": spec.dag_hash(),
            "licence": licence(spec),
            "prefix": str(spec.prefix) if spec.external or spec.installed else "",
            "runs": spec.dag_hash() in runs,
            "bom": own_bom(spec),
            **source(spec),
        }
    )
print(json.dumps(parts))
