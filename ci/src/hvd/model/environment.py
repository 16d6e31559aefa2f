"""The named environments below ``environments/``, and those derived from them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import shlex
from typing import Any, Dict, FrozenSet, List

import yaml

from hvd.core import paths, schema
from hvd.core.errors import HvdError, nearest
from hvd.core.files import write_atomically
from hvd.model import recipe, specs
from hvd.model.specs import Spec

#: The package that the pipeline is about.
HOROVOD = "py-horovod"
#: The environment where none is named.
DEFAULT = "local-hvd"
#: The generated file with this machine's externals, where an environment includes it.
EXTERNALS = "externals.yaml"
#: The directory below ``environments/`` with what each site has.
SITES = "sites"


@dataclasses.dataclass(frozen=True)
class Environment:
    """An environment: its name, its directory and what its ``spack.yaml`` asks for."""

    name: str
    directory: pathlib.Path
    specs: List[str]
    includes: List[str]

    @property
    def site(self) -> str:
        """The site whose externals it includes; empty where it takes this machine's."""
        for entry in self.includes:
            path = pathlib.PurePath(entry)
            if path.parent.name == SITES:
                return path.name
        return ""

    @property
    def externals(self) -> pathlib.Path:
        return self.directory / EXTERNALS

    @property
    def lockfile(self) -> pathlib.Path:
        return self.directory / "spack.lock"

    @property
    def root(self) -> Spec:
        """The root spec of Horovod."""
        for text in self.specs:
            if _names_horovod(text):
                return specs.parse(text, strict=False)
        raise HvdError(
            f"{self.name} has no root spec {HOROVOD}", f"give one: --spec '{HOROVOD} ...'"
        )

    @property
    def frameworks(self) -> FrozenSet[str]:
        """The frameworks of its Horovod, such as ``pytorch``."""
        return frozenset(recipe.load(HOROVOD).complete(self.root).values("frameworks"))

    def inputs(self) -> List[pathlib.Path]:
        """Return every file of this project that decides how the environment concretizes."""
        files = [self.directory / "spack.yaml"]
        for entry in self.includes:
            target = (self.directory / os.path.expandvars(entry)).resolve()
            if target.exists():
                files.append(target)
        return [*files, paths.PACKAGES, paths.ROOT / "repo.yaml"]


def names() -> List[str]:
    """All environments, in alphabetical order."""
    found = (path for each in paths.environments() for path in each.glob("*/spack.yaml"))
    return sorted({path.parent.name for path in found})


def of_sites() -> List[str]:
    """Those that describe a site, in alphabetical order."""
    return [name for name in names() if load(name).site]


def load(name: str) -> Environment:
    """The environment called ``name``, with or without ``-hvd``; derived ones included."""
    name = name.rstrip("/")
    if "/" in name:
        raise HvdError(f"'{name}' is a path", "name an environment; see ./hvd list")
    for each in (name, f"{name}-hvd"):
        for parent in (*paths.environments(), _derived()):
            if (parent / each / "spack.yaml").is_file():
                return _load(parent / each)
    raise HvdError(f"no environment is called '{name}'", nearest(name, names()))


def activation(name: str) -> str:
    """The line of shell by which Spack activates the environment called ``name``.

    ``./hvd setup`` has Spack look for names in ``environments/`` alone.
    """
    directory = load(name).directory
    known = directory.parent == paths.ENVIRONMENTS
    return f"spack env activate {name if known else f'-d {shlex.quote(str(directory))}'}"


def base(environment: Environment) -> str:
    """The name of the environment that ``environment`` was derived from; its own where of none."""
    derived = environment.directory.parent == _derived()
    return environment.name.rpartition("-")[0] if derived else environment.name


def derive(base: Environment, spec: str) -> Environment:
    """``base`` with ``spec`` in place of its Horovod.

    It has a directory of its own below ``.hvd``, and a name that depends on ``spec``, so that
    all that is kept of it is apart from the base's and from that of other specs.
    """
    spec = " ".join(spec.split())
    require_horovod(spec)
    name = f"{base.name}-{hashlib.sha256(spec.encode()).hexdigest()[:7]}"
    directory = _derived() / name
    content = _content(base.directory / "spack.yaml")
    content["specs"] = [spec, *(text for text in base.specs if not _names_horovod(text))]
    content["include"] = [_moved(entry, base) for entry in content["include"]]
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / ".checkout"
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(paths.ROOT, directory))
    text = f"# {base.name}, derived by ./hvd --spec\n"
    text += yaml.safe_dump({"spack": content}, sort_keys=False)
    write_atomically(directory / "spack.yaml", text.encode())
    return _load(directory)


def require_horovod(spec: str) -> None:
    """Refuse a spec of another package."""
    if not _names_horovod(spec):
        raise HvdError(
            f"--spec: '{spec}' is not a spec of {HOROVOD}",
            f"for example: --spec '{HOROVOD}@0.28.1 +mpi~gloo frameworks:=tensorflow'",
        )


def _derived() -> pathlib.Path:
    return paths.state() / "environments"


def _names_horovod(text: str) -> bool:
    return specs.parse(text, strict=False).name == HOROVOD


def _moved(entry: Any, base: Environment) -> Any:
    """An include of ``base`` as a derived environment has to write it."""
    path = _path(entry)
    if (
        (path == EXTERNALS and not base.site)
        or path.startswith((".checkout/", "$"))
        or os.path.isabs(path)
    ):
        return entry
    moved = os.path.abspath(base.directory / path)
    if pathlib.Path(moved).is_relative_to(paths.ROOT):
        moved = f".checkout/{os.path.relpath(moved, paths.ROOT)}"
    return moved if isinstance(entry, str) else {**entry, "path": moved}


def _path(entry: Any) -> str:
    return entry if isinstance(entry, str) else entry["path"]


def _load(directory: pathlib.Path) -> Environment:
    content = _content(directory / "spack.yaml")
    includes = [_path(entry) for entry in content["include"]]
    return Environment(directory.name, directory, list(content["specs"]), includes)


def _content(file: pathlib.Path) -> Dict[str, Any]:
    """Return the value of the key ``spack`` of ``file``, its root specs checked."""
    shown = paths.shorten(file)
    data = schema.read(file)
    content = (data or {}).get("spack") if isinstance(data, dict) else None
    if not isinstance(content, dict):
        raise HvdError(f"{shown}: key 'spack' is missing", "begin the file with 'spack:'")
    roots = content.get("specs")
    if not isinstance(roots, list) or not all(isinstance(spec, str) for spec in roots):
        raise HvdError(
            f"{shown}: key 'spack:specs' must be a list of specs", "add a root spec to it"
        )
    includes = content.setdefault("include", [])
    if not isinstance(includes, list) or not all(
        isinstance(each, str) or isinstance(each, dict) and isinstance(each.get("path"), str)
        for each in includes
    ):
        raise HvdError(
            f"{shown}: key 'spack:include' must be a list of paths", "write one path a line"
        )
    return content
