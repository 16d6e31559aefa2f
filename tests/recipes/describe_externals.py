"""What the recipes without a source say; run by ``spack python``, prints JSON."""

import json

import spack.error
import spack.repo
from spack.spec import Spec


def refused(text):
    """The messages of the conflicts that the spec ``text`` meets."""
    spec = Spec(text)
    conflicts = spack.repo.PATH.get_pkg_class(spec.name).conflicts
    return [
        message
        for when, found in conflicts.items()
        for conflict, message in found
        if spec.satisfies(when) and spec.satisfies(conflict)
    ]


def installation(name, version):
    """What an attempt to install says."""
    spec = Spec(f"{name}@={version}")
    recipe = spack.repo.PATH.get_pkg_class(name)
    try:
        recipe.install(object(), spec, "/nowhere")
    except spack.error.SpackError as error:
        return error.message
    return ""


print(
    json.dumps(
        {
            "refused": {name: refused(f"{name}@1.5.0") for name in ("ibm-ddl", "intel-mpi")},
            "install": {
                "ibm-ddl": installation("ibm-ddl", "1.5.0"),
                "intel-mpi": installation("intel-mpi", "2018.2.199"),
            },
            "mpi": sorted(p.name for p in spack.repo.PATH.providers_for("mpi@3")),
        }
    )
)
