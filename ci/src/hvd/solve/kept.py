"""The solution of a site's environment, kept with it in ``dag.txt``: a line for each package.

It has no hashes, which depend on every line of every recipe, and nothing that depends on the
machine that solved it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any, List, Mapping, Tuple

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import solution
from hvd.model.environment import HOROVOD, Environment
from hvd.model.versions import Pair

#: The variants that the externals of sites state; the others have defaults that Spack assumes.
_STATED = ("cuda", "rocm", "cuda_arch", "amdgpu_target", "fabrics", "schedulers", "languages")
#: What Spack adds by itself where a compiler is there, and so on the site alone.
_RUNTIMES = ("compiler-wrapper", "gcc-runtime", "glibc")
_LINE = re.compile(
    r"(?P<name>[\w.-]+)@(?P<version>\S+)(?P<variants>(?: [^\s\[]\S*)*)(?: \[(?P<origin>.+)\])?"
)
_HEAD = """\
# The packages of {environment}, concretized by ./hvd dev lock with Spack {pair.spack.version} and
# packages {pair.packages.version} for {architectures}.  Externals have a prefix.
# On the site Spack adds gcc-runtime and the compiler wrapper, and may choose newer build tools."""


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of a solution: its variants and flags that are on or have a value."""

    name: str
    version: str
    variants: Tuple[str, ...] = ()
    origin: str = "built"  # or prefix and modules of an external

    def __str__(self) -> str:
        external = [] if self.origin == "built" else [f"[{self.origin}]"]
        return " ".join([f"{self.name}@{self.version}", *self.variants, *external])


@dataclasses.dataclass(frozen=True)
class Kept:
    """A ``dag.txt``, and the packages in it: first what is built."""

    text: str
    packages: List[Package]


def packages(specs: Mapping[str, Any]) -> List[Package]:
    """The packages of the concrete ``specs``, by hash, that any machine's solution has."""
    found = []
    for node in solution.nodes(specs):
        words = solution.WORD.findall(node.variants)
        words = [word for word in words if word[0] != "~" and not word.endswith("=none")]
        if node.external:
            words = [word for word in words if word.lstrip("+").partition("=")[0] in _STATED]
        origin = node.prefix if node.external else "built"
        if node.name not in _RUNTIMES:
            found.append(Package(node.name, node.version, tuple(words), origin))
    return sorted(found, key=lambda each: (each.origin != "built", each.name, each.version))


def built(found: List[Package]) -> List[str]:
    """Return what Spack builds besides Horovod from sources, each as ``name@version``."""
    return [
        f"{each.name}@{each.version}"
        for each in found
        if each.origin == "built" and each.name not in (HOROVOD, "python-venv")
    ]


def make(environment: Environment, specs: Mapping[str, Any], pair: Pair) -> Kept:
    """Return the ``dag.txt`` for the concrete ``specs``, by hash."""
    nodes = [node for node in solution.nodes(specs) if node.name not in _RUNTIMES]
    head = _HEAD.format(
        environment=environment.name,
        pair=pair,
        architectures=", ".join(sorted({node.architecture for node in nodes})),
    )
    found = packages(specs)
    roots = [f"#   {spec}" for spec in environment.specs]
    return Kept("\n".join([head, *roots, *map(str, found), ""]), found)


def file(environment: Environment) -> pathlib.Path:
    """The ``dag.txt`` of ``environment``."""
    return environment.directory / "dag.txt"


def load(environment: Environment) -> Kept:
    """The kept solution of ``environment``, that of a site."""
    shown = paths.shorten(file(environment))
    remedy = f"make it: ./hvd dev lock {environment.name}"
    try:
        text = file(environment).read_text()
    except OSError as error:
        raise HvdError(f"{shown}: {error.strerror}", remedy) from error
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match:
            variants = tuple(match["variants"].split())
            found.append(
                Package(match["name"], match["version"], variants, match["origin"] or "built")
            )
        elif line and not line.startswith("#"):
            raise HvdError(f"{shown}:{number}: '{line}' is not a package", remedy)
    return Kept(text, found)
