"""The axes of a pipeline's job matrix, each read from the file that defines it."""

from __future__ import annotations

import json
from typing import Dict, List

from hvd.model import environment, pins

#: What builds `local-hvd`, each in a job of its own.
ENGINES = ("spack", "pip")


def axes() -> Dict[str, List[str]]:
    """The values by the name of the axis: environments, supported pairs, engines."""
    return {
        "environments": environment.names(),
        "pairs": [pair.name for pair in pins.versions().pairs],
        "engines": list(ENGINES),
    }


def render() -> str:
    """One ``name=JSON`` per line."""
    return "".join(f"{name}={json.dumps(values)}\n" for name, values in axes().items())
