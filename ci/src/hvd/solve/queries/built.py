"""Print as JSON what the active Spack environment runs with; run by ``spack python``.

The variables are those of ``spack load`` for all roots: of the packages' own prefixes, which
never change, and not of the environment's view, which its next installation changes.
"""

import json

import spack.environment
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


def part(virtual):
    found = horovod.dependencies(virtuals=(virtual,))
    return {"name": found[0].name, "version": str(found[0].version)} if found else {}


result = {"changes": listed, "other": other, "modules": modules}
print(json.dumps({**result, "compiler": part("cxx"), "mpi": part("mpi")}))
