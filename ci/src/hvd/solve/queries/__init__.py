"""The programs that run inside Spack's interpreter: ``spack python FILE``.

They alone use what Spack does not promise to keep.  Each prints JSON and imports nothing of this
package.
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
