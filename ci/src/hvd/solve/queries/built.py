"""Print as JSON what the active environment runs with, and its parts; run by ``spack python``.

The variables are those of ``spack load`` for all roots: of the packages' own prefixes, which
never change, and not of the environment's view, which its next installation changes.
"""

import json
import os

import spack.environment
import spack.error
import spack.fetch_strategy
import spack.store
import spack.user_environment
from spack import traverse
from spack.util import environment as changes

KINDS = {
    changes.SetEnv: "set",
    changes.PrependPath: "prepend",
    changes.AppendPath: "append",
    changes.AppendFlagsEnv: "append",
}


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


def part(spec):
    """The facts about a package that its concrete spec does not have."""
    return {
        "hash": spec.dag_hash(),
        "licence": licence(spec),
        "prefix": str(spec.prefix) if spec.external or spec.installed else "",
        "runs": spec.dag_hash() in runs,
        "bom": own_bom(spec),
        **source(spec),
    }


# as they are in the database, which is where `spack load` has them from: their order counts
wanted = spack.environment.active_environment().concrete_roots()
with spack.store.STORE.db.read_transaction():
    roots = [spack.store.STORE.db.query_by_spec_hash(spec.dag_hash())[1].spec for spec in wanted]
listed = []
other = []
for change in spack.user_environment.environment_modifications_for_specs(*roots):
    if type(change) not in KINDS:
        other.append(f"{type(change).__name__} {change.name}")
        continue
    entry = {"kind": KINDS[type(change)], "name": change.name, "value": str(change.value)}
    if entry["kind"] != "set":
        entry["separator"] = change.separator
    listed.append(entry)

modules = []
for spec in traverse.traverse_nodes(roots, deptype=("link", "run"), order="topo"):
    modules += [name for name in spec.external_modules or [] if name not in modules]
(horovod,) = [spec for spec in wanted if spec.name == "py-horovod"]


def provider(virtual):
    found = horovod.dependencies(virtuals=(virtual,))
    return {"name": found[0].name, "version": str(found[0].version)} if found else {}


by_hash = {"key": traverse.by_dag_hash}
runs = {s.dag_hash() for s in traverse.traverse_nodes(wanted, deptype=("link", "run"), **by_hash)}
result = {
    "changes": listed,
    "other": other,
    "modules": modules,
    "compiler": provider("cxx"),
    "mpi": provider("mpi"),
    "parts": [part(s) for s in traverse.traverse_nodes(wanted, deptype="all", **by_hash)],
}
print(json.dumps(result))
