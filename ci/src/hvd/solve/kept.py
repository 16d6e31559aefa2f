"""The solution of a site's environment, kept with it: ``dag.json``, and ``dag.md`` for readers.

It has no hashes, which depend on every line of every recipe, and nothing that depends on the
machine that solved it.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import json
import pathlib
from typing import Any, Dict, List, Mapping, Tuple

import cattrs

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.model import solution
from hvd.model.environment import HOROVOD, Environment
from hvd.model.versions import Pair
from hvd.report import templates

#: The variants that the externals of sites state; the others have defaults that Spack assumes.
_STATED = ("cuda", "rocm", "cuda_arch", "amdgpu_target", "fabrics", "schedulers", "languages")
#: What Spack adds by itself where a compiler is there, and so on the site alone.
_RUNTIMES = ("compiler-wrapper", "gcc-runtime", "glibc")
_CONVERTER = cattrs.Converter(omit_if_default=True, forbid_extra_keys=True)


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of a solution; a field is empty where the solution does not say."""

    name: str
    version: str
    variants: Tuple[str, ...] = ()  # variants and flags, one string each
    compiler: str = ""  # such as ``gcc@12.2.0``
    architecture: str = ""  # ``platform-os-target``
    origin: str = "built"  # or the place of an external
    hash: str = ""  # the whole hash
    recipe: str = ""  # a digest of its recipe

    def reduced(self) -> Package:
        """The package as a kept solution has it: variants that are on or have a value."""
        words = [w for w in self.variants if not w.startswith("~") and not w.endswith("=none")]
        if self.origin != "built":
            words = [w for w in words if w.lstrip("+").partition("=")[0] in _STATED]
        return Package(self.name, self.version, tuple(words), origin=self.origin)


@dataclasses.dataclass(frozen=True)
class Kept:
    """The content of ``dag.json``."""

    environment: str
    spack: str  # version of the Spack that solved it
    spack_packages: str  # version of its packages
    specs: List[str]  # the root specs
    architectures: List[str]  # those of the packages, the most frequent one first
    packages: List[Package]  # reduced; first what is built


def packages(specs: Mapping[str, Any]) -> List[Package]:
    """The packages of the concrete ``specs``, by hash."""
    return [
        Package(
            name=node.name,
            version=node.version,
            variants=tuple(solution.WORD.findall(node.variants)),
            compiler=solution.compiler(spec, specs),
            architecture=node.architecture,
            origin=node.prefix if node.external else "built",
            hash=hash_,
            recipe=str(spec.get("package_hash", "")),
        )
        for node, (hash_, spec) in zip(solution.nodes(specs), specs.items())
    ]


def built(found: List[Package]) -> List[str]:
    """Return what Spack builds besides Horovod from sources, each as ``name@version``."""
    left = (HOROVOD, "python-venv", *_RUNTIMES)
    return sorted(
        f"{each.name}@{each.version}"
        for each in found
        if each.origin == "built" and each.name not in left
    )


def reduce(found: List[Package]) -> List[Package]:
    """Those of ``found`` that a solution on any machine has, reduced."""
    return [package.reduced() for package in found if package.name not in _RUNTIMES]


def make(environment: Environment, specs: Mapping[str, Any], pair: Pair) -> Kept:
    """Return the content of ``dag.json`` for the concrete ``specs``, by hash."""
    whole = packages(specs)
    common = collections.Counter(
        sorted(package.architecture for package in whole if package.name not in _RUNTIMES)
    )
    return Kept(
        environment=environment.name,
        spack=pair.spack.version,
        spack_packages=pair.packages.version,
        specs=environment.specs,
        architectures=[name for name, _ in common.most_common()],
        packages=sorted(
            reduce(whole), key=lambda each: (each.origin != "built", each.name, each.version)
        ),
    )


def file(environment: Environment) -> pathlib.Path:
    """The ``dag.json`` of ``environment``."""
    return environment.directory / "dag.json"


def load(environment: Environment) -> Kept:
    """The kept solution of ``environment``, that of a site.

    Raises:
        HvdError: there is none, or its file is damaged.
    """
    path = file(environment)
    try:
        return read(path.read_text(), paths.shorten(path))
    except OSError as error:
        raise HvdError(
            f"{paths.shorten(path)}: {error.strerror}", f"make it: ./hvd lock {environment.name}"
        ) from error


def read(content: str, name: str) -> Kept:
    """The kept solution in ``content``, the text of a ``dag.json`` that is called ``name``.

    Raises:
        HvdError: it is not a kept solution.
    """
    try:
        return _CONVERTER.structure(json.loads(content), Kept)
    except (ValueError, cattrs.BaseValidationError) as error:
        raise HvdError(
            f"{name} is neither a spack.lock nor a dag.json", "make it: ./hvd lock"
        ) from error


def write(environment: Environment, kept: Kept) -> None:
    """Write the files of ``kept``."""
    for path, content in _files(environment, kept).items():
        write_atomically(path, content.encode())


def difference(environment: Environment, kept: Kept) -> List[str]:
    """The lines in which ``kept`` differs from the files, as ``diff -u`` has them."""
    lines: List[str] = []
    for path, content in _files(environment, kept).items():
        before = path.read_text() if path.exists() else ""
        titles = [f"{paths.shorten(path)} as {state}" for state in ("kept", "solved")]
        lines += difflib.unified_diff(
            before.splitlines(), content.splitlines(), *titles, lineterm=""
        )
    return lines


def _files(environment: Environment, kept: Kept) -> Dict[pathlib.Path, str]:
    path = file(environment)
    data = json.dumps(_CONVERTER.unstructure(kept), indent=1)
    return {path.with_suffix(".md"): render(kept), path: f"{data}\n"}


def render(kept: Kept) -> str:
    """The ``dag.md`` of ``kept``."""
    return templates.render("solve/dag.md.j2", dag=kept)
