"""The programs that run inside Spack's interpreter: ``spack python FILE``.

They alone use what Spack does not promise to keep: `INTERFACES`.  Each prints JSON and imports
nothing of this package.
"""

import pathlib

_HERE = pathlib.Path(__file__).parent
#: What of an environment a binary cache does not have, or not as it was signed.
CACHE = _HERE / "cache.py"
#: What an environment runs with, and its packages with licences and sources.
BUILT = _HERE / "built.py"
#: The packages that an environment can never need.
PRUNE = _HERE / "prune.py"
#: The sources that an environment is built from.
SOURCES = _HERE / "sources.py"

#: All that these programs use below Spack's modules: what to look at when a new Spack comes.
INTERFACES = (
    "spack.config.get",
    "spack.deptypes.TEST",
    "spack.environment.active_environment",
    "spack.error.SpackError",
    "spack.fetch_strategy.for_package_version",
    "spack.mirrors.layout.default_mirror_layout",
    "spack.platforms.host",
    "spack.repo.PATH.get_pkg_class",
    "spack.repo.PATH.is_virtual",
    "spack.repo.PATH.providers_for",
    "spack.spec.Spec",
    "spack.spec.Spec.from_dict",
    "spack.store.STORE.db.query_by_spec_hash",
    "spack.store.STORE.db.read_transaction",
    "spack.store.STORE.layout.metadata_path",
    "spack.traverse.by_dag_hash",
    "spack.traverse.traverse_nodes",
    "spack.url_buildcache.get_url_buildcache_class",
    "spack.user_environment.environment_modifications_for_specs",
    "spack.util.environment.AppendFlagsEnv",
    "spack.util.environment.AppendPath",
    "spack.util.environment.PrependPath",
    "spack.util.environment.SetEnv",
)
