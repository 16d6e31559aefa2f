"""Print as JSON why packages of the active environment cannot be installed from a binary cache.

Run by ``spack python``.  Arguments: the cache's address; ``signed`` or ``unsigned``.  Each package
that is not installed is downloaded, and its signature, checksums and hash are verified: Spack
itself says of a package that it may not use only that there is none, and takes one that was signed
under another's name.
"""

import json
import sys

import spack.environment
import spack.spec
from spack import traverse
from spack.url_buildcache import get_url_buildcache_class

URL, SIGNATURES = sys.argv[1:]
# the layout that every supported Spack writes
Entry = get_url_buildcache_class(3)


def fault(spec):
    """Return why ``spec`` cannot be installed from the cache; empty if it can."""
    entry = Entry(URL, spec, allow_unsigned=SIGNATURES == "unsigned")
    try:
        found = spack.spec.Spec.from_dict(entry.fetch_metadata())
        entry.fetch_archive()
        return "" if found.dag_hash() == spec.dag_hash() else f"the cache has {found} in its place"
    except Exception as error:
        return str(error) or type(error).__name__
    finally:
        entry.destroy()


faults = {}
roots = spack.environment.active_environment().concrete_roots()
for spec in traverse.traverse_nodes(roots, deptype=("link", "run"), key=traverse.by_dag_hash):
    if not (spec.external or spec.installed):
        reason = fault(spec)
        if reason:
            faults[f"{spec.name}@{spec.version}/{spec.dag_hash(7)}"] = reason
print(json.dumps(faults))
