"""Describe what a Python interpreter has as Spack externals.

With a site's PyTorch or TensorFlow from a module or conda, Spack must be told what is there
and what belongs to what: an external without its dependencies loads without them.  The result
is a ``packages.yaml`` with explicit ``dependencies:`` that Spack 1.1 and later accept; see
https://spack.readthedocs.io/en/latest/packages_yaml.html#external-packages.
"""

from __future__ import annotations

import io
import json
import pathlib
import re
import subprocess
from typing import Any, Dict, List, Mapping, Optional

import yaml

from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.host import mpi as mpi_module
from hvd.host import probe
from hvd.host.mpi import Mpi
from hvd.model.environment import Environment
from hvd.model.specs import Spec, parse

#: Distributions on the Python index that are one Spack package, where the names differ.
_RENAMED = {
    "intel-tensorflow": "py-tensorflow",
    "tensorflow-cpu": "py-tensorflow",
    "tensorflow-cpu-aws": "py-tensorflow",
    "tensorflow-gpu": "py-tensorflow",
    "tensorflow-rocm": "py-tensorflow",
    "mxnet": "mxnet",
    "mxnet-mkl": "mxnet",
}
#: The frameworks' packages where they are called otherwise than the recipe's variant.
PACKAGES = {"pytorch": "py-torch", "mxnet": "mxnet", "spark": "py-pyspark"}
#: What people call the frameworks' packages.
FRAMEWORKS = {"py-torch": "PyTorch", "py-tensorflow": "TensorFlow"}
#: Spack packages that a Horovod can take from an interpreter: with their deptypes on Python.
_LINKED = ("py-torch", "py-tensorflow", "mxnet")
_TAKEN = _LINKED + (
    "py-keras",
    "py-numpy",
    "py-cffi",
    "py-cloudpickle",
    "py-mpi4py",
    "py-packaging",
    "py-psutil",
    "py-pyyaml",
    "py-setuptools",
)
#: What the frameworks cannot be imported without, as far as it is in ``_TAKEN``.
_NEEDS = {
    "py-torch": ("py-numpy",),
    "py-tensorflow": ("py-numpy", "py-keras"),
    "mxnet": ("py-numpy",),
    "py-keras": ("py-numpy",),
}
_PROBE_TIMEOUT = 300


def ask(python: str, environment: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """What the interpreter ``python`` has, as ``hvd.host.probe`` says it.

    Raises:
        HvdError: no such interpreter, or a framework that cannot be imported.
    """
    command = [python, "-s", pathlib.Path(probe.__file__)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT, env=environment
        )
    except OSError as error:
        raise HvdError(
            f"{python}: {error.strerror}", "give the interpreter's path with --python"
        ) from error
    if done.returncode != 0:
        raise HvdError(
            f"{python} does not run: {done.stderr.strip().splitlines()[-1:]}",
            "load the modules that it needs first",
        )
    found = json.loads(done.stdout.splitlines()[-1])
    for name, problem in found["broken"].items():
        raise HvdError(
            f"{python} has {name} but cannot import it: {problem}",
            "load the modules that it needs first, or remove the broken installation",
        )
    for item in found["distributions"].values():
        item["prefix"] = _prefix(item, found["python"])
    return found


def _prefix(item: Mapping[str, str], python: Mapping[str, str]) -> str:
    """The prefix below which Spack finds a distribution.

    Debian's packages are in ``/usr/lib/python3/dist-packages``, and Spack looks for all of an
    interpreter in the directory that the interpreter names for what pip installs: so it is given
    a prefix that leads there.
    https://www.debian.org/doc/packaging-manuals/python-policy/#module-path

    Args:
        item: a distribution as ``hvd.host.probe`` says it.
        python: the interpreter.
    """
    directory, usual = pathlib.Path(item["directory"]), pathlib.Path(python["platlib"])
    if not item["prefix"] or directory.parts[-2:] == usual.parts[-2:]:
        return item["prefix"]
    below = usual.relative_to(python["prefix"])
    prefix = paths.STATE / "prefixes" / stamp.of(str(directory), str(below))[:8]
    link = prefix / below
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(directory)
    return str(prefix)


def specs(section: Mapping[str, Any]) -> Dict[str, Spec]:
    """The external of each package in ``section``, as :func:`packages` makes it."""
    return {
        name: parse(entry["externals"][0]["spec"])
        for name, entry in section.items()
        if "externals" in entry
    }


def packages(
    found: Mapping[str, Any], mpi: Optional[Mpi] = None, arch: str = ""
) -> Dict[str, Any]:
    """The ``packages:`` section for what :func:`ask` found.

    Args:
        found: what the interpreter has.
        mpi: the MPI to declare as well.
        arch: appended to every external's spec: ``"os=sles15 target=zen3"``.

    Raises:
        HvdError: the interpreter has no headers, so that nothing can be built for it.
    """
    python = found["python"]
    if not python["header"]:
        raise HvdError(
            f"{python['executable']} has no Python.h",
            "install its headers (python3-dev, python3-devel) or take another interpreter",
        )
    section: Dict[str, Any] = {}
    _add(section, "python", python["version"], python["prefix"], [], arch=arch)
    if mpi:
        _add(section, mpi.package, mpi.version, str(mpi.prefix), [], arch=arch)
        if mpi.variables:
            # Spack sets them for what runs with it
            (external,) = section[mpi.package]["externals"]
            external["extra_attributes"] = {"environment": {"set": mpi.variables}}
        section["mpi"] = {"buildable": False}
    have = _taken(found["distributions"])
    for package, item in have.items():
        types = ["build", "link", "run"] if package in _LINKED else ["build", "run"]
        needs = [_dependency("python", python["version"], types)]
        for name in _NEEDS.get(package, ()):
            if name in have:
                needs.append(_dependency(name, have[name]["version"], ["build", "run"]))
        if package == "py-mpi4py":
            if not mpi:
                # it would be declared without the library that it loads
                continue
            needs.append({**_dependency(mpi.package, mpi.version, ["link"]), "virtuals": "mpi"})
        _add(
            section,
            package,
            item["version"],
            item["prefix"] or python["prefix"],
            needs,
            variants=_variants(package, found["frameworks"]),
            arch=arch,
        )
    return section


def for_site(found: Mapping[str, Any], environment: Environment) -> Dict[str, Any]:
    """As :func:`packages`, for a site's environment: in place of the site's, and with its MPI.

    Raises:
        HvdError: the environment is not one of a site.
    """
    if not environment.site:
        raise HvdError(
            f"{environment.name} takes what ./hvd finds on this machine",
            "leave its name out, and give a file with --scope",
        )
    system = dict(re.findall(r"\b(os)=(\S+)", environment.specs[0]))["os"]
    # Spack's way to say that lower files do not add to this: a colon more
    return {f"{key}:": value for key, value in packages(found, None, f"os={system}").items()}


def write(section: Mapping[str, Any], scope: pathlib.Path, origin: str) -> None:
    """Write ``section`` as a configuration file, whole or not at all.

    Raises:
        HvdError: the file is there and was not written by this function.
    """
    mark = "# Written by ./hvd externals"
    if scope.exists() and not scope.read_text().startswith(mark):
        raise HvdError(
            f"{scope} was not written by ./hvd externals",
            "move it away, or give another file with --scope",
        )
    text = f"{mark} --python {origin}; it may write this file again.\n{dump(section)}"
    write_atomically(scope, text.encode())


def dump(section: Mapping[str, Any]) -> str:
    """``section`` as YAML text, below the key ``packages``."""
    stream = io.StringIO()
    yaml.safe_dump({"packages": dict(section)}, stream, sort_keys=False, default_flow_style=None)
    return stream.getvalue()


def find_mpi(found: Mapping[str, Any]) -> Optional[Mpi]:
    """The MPI on PATH, or else the one that the interpreter's own prefix holds."""
    return mpi_module.find() or mpi_module.find(
        str(pathlib.Path(found["python"]["prefix"], "bin"))
    )


def by_package(distributions: Mapping[str, Any]) -> Dict[str, Any]:
    """``distributions`` by the names of their Spack packages."""
    return {_RENAMED.get(name, f"py-{name}"): item for name, item in distributions.items()}


def _taken(distributions: Mapping[str, Any]) -> Dict[str, Any]:
    have = by_package(distributions)
    return {name: have[name] for name in _TAKEN if name in have}


def _add(
    section: Dict[str, Any],
    package: str,
    version: str,
    prefix: str,
    dependencies: List[Dict[str, Any]],
    *,
    variants: str = "",
    arch: str = "",
) -> None:
    spec = f"{package}@{spack_version(version)}{variants}"
    external: Dict[str, Any] = {"spec": f"{spec} {arch}".strip(), "prefix": prefix}
    if dependencies:
        external["dependencies"] = dependencies
    # another one, built by Spack, would stand in the way of this one at run time
    section[package] = {"buildable": False, "externals": [external]}


def _dependency(package: str, version: str, deptypes: List[str]) -> Dict[str, Any]:
    return {"spec": f"{package}@{spack_version(version)}", "deptypes": deptypes}


def spack_version(version: str) -> str:
    """A distribution's version without its local part, which Spack could not compare."""
    return re.sub(r"\+.*$", "", version)


def _variants(package: str, frameworks: Mapping[str, Any]) -> str:
    if package == "mxnet":
        # what an interpreter has, it can import
        return "+python"
    known = frameworks.get(package.replace("py-", ""), None)
    if known is None:
        return ""
    architectures = [a for a in known["architectures"] if a.isdigit()]
    cuda = "+cuda" if known["cuda"] else "~cuda"
    if known["cuda"] and architectures:
        cuda += f" cuda_arch={','.join(architectures)}"
    rocm = "+rocm" if known["rocm"] else "~rocm"
    if package == "py-tensorflow":
        # its nccl is there by default, and for GPUs alone
        return f"{'+' if known['cuda'] or known['rocm'] else '~'}nccl{rocm}{cuda}"
    if package != "py-torch":
        return cuda
    if not known["distributed"]:
        return f"~distributed{rocm}{cuda}"
    return f"{'+' if known['gloo'] else '~'}gloo{'+' if known['mpi'] else '~'}mpi{rocm}{cuda}"
