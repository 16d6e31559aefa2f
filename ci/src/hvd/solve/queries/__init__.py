"""The programs that run inside Spack's interpreter: ``spack python FILE``.

They alone use what Spack does not promise to keep.  Each prints JSON and imports nothing of ours.
"""

import pathlib

_HERE = pathlib.Path(__file__).parent
#: What a binary cache has of an environment.
CACHE = _HERE / "cache.py"
#: What an environment runs with.
BUILT = _HERE / "built.py"
#: The packages of an environment, with licences and sources.
PARTS = _HERE / "parts.py"
#: The packages that an environment can never need.
PRUNE = _HERE / "prune.py"
#: The sources that an environment is built from.
SOURCES = _HERE / "sources.py"
