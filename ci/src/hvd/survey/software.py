"""The software of a machine as externals: Spack's detection, and a Python's frameworks."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import yaml

from hvd.core import paths, schema
from hvd.core.errors import HvdError, nearest
from hvd.host import externals
from hvd.host import mpi as mpi_module
from hvd.host.mpi import Mpi
from hvd.model import environment
from hvd.model.specs import parse
from hvd.solve.spack import Spack
from hvd.survey.record import Record, places

TOOLS = ("gcc", "cmake", "gmake")
MPIS = ("openmpi", "mpich", "intel-oneapi-mpi", "mvapich", "mvapich-plus")
CUDA = ("cuda", "nccl")
ROCM = ("hip", "hsa-rocr-dev", "llvm-amdgpu", "rccl")
#: What holds for every site.
COMMON = paths.ENVIRONMENTS / environment.SITES / "common" / "packages.yaml"
#: What Spack can find by itself.
DETECTABLE = (*TOOLS, *MPIS, *CUDA, *ROCM, "spectrum-mpi")
#: Directories below a prefix that modules name.
_BELOW = ("bin", "include", "lib", "lib64")

External = Dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The modules that the admin names, in order, and what each brings.

    Args:
        variables: those of a shell that has loaded all of them.
        needs: for each module, the modules to load to have it.
        brings: for each module, the paths that it adds to the variables.
    """

    variables: Mapping[str, str]
    needs: Mapping[str, Tuple[str, ...]]
    brings: Mapping[str, FrozenSet[str]]

    def owners(self, prefix: str) -> Tuple[str, ...]:
        """Return the modules to load for what is at ``prefix``; none if it is there without."""
        owners = (name for name, brought in self.brings.items() if any_below(prefix, brought))
        return next((self.needs[name] for name in owners), ())

    def hints(self) -> List[str]:
        """Return the directories to look for software in, those of PATH first."""
        found = self.variables.get("PATH", "").split(":")
        return [*found, *sorted(path for brought in self.brings.values() for path in brought)]


def load(record: Record, modules: Sequence[str]) -> Loaded:
    """Load ``modules`` one after the other, and each alone.

    Raises:
        HvdError: one cannot be loaded.
    """
    variables = dict(record.shell)
    # bash has variables of its own
    before = places(record.load([]) or {})
    needs: Dict[str, Tuple[str, ...]] = {}
    brings: Dict[str, FrozenSet[str]] = {}
    for number, module in enumerate(modules):
        record.module("show", module)
        after = record.load([[each] for each in modules[: number + 1]])
        if after is None:
            known = [each for each in record.module("-t", "avail").split() if each[-1] not in "/:"]
            hint = nearest(module, known) or "start ./hvd in a shell that has `module`"
            raise HvdError(
                f"--module {module}: `module load {' '.join(modules[: number + 1])}` fails",
                # where nothing is near, all of them
                hint if len(hint) < 200 else "`module avail` lists them",
            )
        loaded = after.get("LOADEDMODULES", "").split(":")
        # the version that the tool chose
        full = next((each for each in loaded if f"{each}/".startswith(f"{module}/")), module)
        alone = number == 0 or record.load([[module]]) is not None
        needs[full] = (full,) if alone else (*needs, full)
        variables, brings[full] = after, places(after) - before
        before |= brings[full]
    return Loaded(variables, needs, brings)


def any_below(prefix: str, brought: Iterable[str]) -> bool:
    """Return whether modules that bring these paths bring ``prefix``, if not the system's."""
    return prefix != "/usr" and any(f"{path}/".startswith(f"{prefix}/") for path in brought)


def detect(
    record: Record, spack: Spack, hints: Iterable[str], names: Iterable[str], log: pathlib.Path
) -> Dict[str, List[External]]:
    """Return the externals that Spack finds of the packages ``names`` in ``hints`` or above.

    Args:
        hints: directories; one such as .../bin stands for its parent, too.
    """
    searched: Dict[str, None] = {}
    for hint in hints:
        parent, name = os.path.split(hint)
        for path in (hint, parent) if name in _BELOW else (hint,):
            if os.path.isdir(path):
                searched[path] = None
    if not searched:
        return {}
    find = ["external", "find", "--scope=user"]
    for path in searched:
        find += ["--path", path]
    with tempfile.TemporaryDirectory() as scratch:
        scope = pathlib.Path(scratch, "scope")
        shutil.copytree(spack.scope, scope, ignore=shutil.ignore_patterns("packages.yaml"))
        variables = {"SPACK_USER_CONFIG_PATH": str(scope)}
        done = spack.run(*find, *names, log=log, variables=variables, timeout=600)
        file = scope / "packages.yaml"
        text = file.read_text() if file.exists() else ""
    record.add(f"spack {' '.join([*find, *names])}", f"{done.output}\n{text}")
    found = (yaml.safe_load(text) or {}).get("packages", {})
    return {name: entry["externals"] for name, entry in found.items() if entry.get("externals")}


def choose(found: Mapping[str, List[External]], hints: Sequence[str]) -> Dict[str, External]:
    """Return the external of each package that ``hints`` have first."""

    def place(external: External) -> Tuple[int, int, Tuple[int, ...]]:
        programs = external.get("extra_attributes", {}).get("compilers", {})
        prefix = os.path.dirname(programs["c"]) if "c" in programs else external["prefix"]
        order = (n for n, hint in enumerate(hints) if prefix in (hint, os.path.dirname(hint)))
        version = re.findall(r"\d+", parse(external["spec"]).versions)
        # of two there, the one that has all languages, and the newer one
        return next(order, len(hints)), -len(programs), tuple(-int(part) for part in version)

    return {name: min(each, key=place) for name, each in found.items()}


def find_mpi(chosen: Mapping[str, External], variables: Mapping[str, str]) -> Optional[Mpi]:
    """Return Cray's MPI, or else the one that Spack has found, or else that of PATH."""
    # by documents, not run: docs/mpich.md of github.com/olcf/afar-prgenv, 2026
    if "CRAY_MPICH_DIR" in variables:
        prefix = pathlib.Path(variables["CRAY_MPICH_DIR"])
        return Mpi("cray-mpich", variables["CRAY_MPICH_VERSION"], prefix)
    for name in MPIS:
        if name in chosen:
            version = parse(chosen[name]["spec"]).versions
            return Mpi(name, version, pathlib.Path(chosen[name]["prefix"]))
    return mpi_module.find(variables.get("PATH", ""))


def section(
    interpreter: Mapping[str, Any],
    chosen: Mapping[str, External],
    library: Mpi,
    loaded: Loaded,
    system: str,
    gpu: str,
) -> Dict[str, Dict[str, Any]]:
    """Return the section `packages` of a site.

    Args:
        interpreter: what :func:`hvd.host.externals.ask` says of it.
        chosen: what Spack has found and the site is to provide.
        system: Spack's name of the operating system.
        gpu: the variant that names the GPU, such as ``cuda_arch=80``; empty without GPUs.
    """
    arch = f"os={system}"
    shared = schema.read(COMMON)["packages"]
    packages = externals.packages(interpreter, library, arch)
    packages.update({"all": {"require": [arch]}, "mpi": {"require": [library.package]}})
    for name, detected in chosen.items():
        # NCCL and RCCL do not say for which GPUs they are
        variants = {"nccl": f"+cuda {gpu}", "rccl": gpu}.get(name, "")
        spec = " ".join(filter(None, [detected["spec"], variants, arch]))
        external = {"spec": spec, "prefix": detected["prefix"]}
        if name == "gcc":
            external["extra_attributes"] = _by_way_of(
                os.path.realpath(interpreter["python"]["prefix"]), detected["extra_attributes"]
            )
        if name == "nccl":
            version = parse(chosen["cuda"]["spec"]).versions
            external["dependencies"] = [{"spec": f"cuda@{version}"}]
        packages[name] = {"buildable": False, "externals": [external]}
    for name in gpu and {"py-torch", "py-tensorflow"} & set(packages):
        (external,) = packages[name]["externals"]
        # not every framework says for which GPUs it is
        if gpu.partition("=")[0] not in external["spec"]:
            external["spec"] += f" {gpu}"
    named = set()
    # the others at the prefix depend on these
    for name, entry in sorted(packages.items(), key=lambda item: item[0] not in ("python", "hip")):
        for external in entry.get("externals", []):
            modules = loaded.owners(external["prefix"])
            # Spack asks a compiler for its C library, and would stop where there are no modules
            if modules and name != "gcc" and modules not in named:
                external["modules"] = list(modules)
                # Spack 1.2.0 fails to load what it has just loaded:
                # https://github.com/spack/spack/pull/52752
                named.add(modules)
        if "buildable" in shared.get(name, {}):
            entry.pop("buildable", None)
    return dict(sorted(packages.items()))


def _by_way_of(prefix: str, attributes: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a compiler's attributes with paths through ``prefix``, which no other machine has.

    On another machine Spack would ask the /usr/bin/gcc there for its C library.
    """
    programs = attributes["compilers"]
    if not prefix.startswith("/usr"):
        programs = {
            language: os.path.join(prefix, os.path.relpath(path, prefix))
            for language, path in programs.items()
        }
    return {"compilers": programs}
