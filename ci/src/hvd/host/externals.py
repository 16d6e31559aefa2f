"""Describe what a Python interpreter has as Spack externals.

With a site's PyTorch or TensorFlow from a module or conda, Spack must be told what is there
and what belongs to what: an external without its dependencies loads without them.  The result
is a ``packages.yaml`` with explicit ``dependencies:`` that Spack 1.1 and later accept; see
https://spack.readthedocs.io/en/latest/packages_yaml.html#external-packages.
"""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
from typing import Any, Dict, List, Mapping, Optional

import yaml

from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.host import interpreter
from hvd.host import mpi as mpi_module
from hvd.host.mpi import Mpi
from hvd.model.environment import Environment
from hvd.model.specs import Spec, parse

#: Distributions on the Python index to their Spack package, unless that is py- and their name.
_RENAMED = {
    "intel-tensorflow": "py-tensorflow",
    "tensorflow-cpu": "py-tensorflow",
    "tensorflow-cpu-aws": "py-tensorflow",
    "tensorflow-gpu": "py-tensorflow",
    "tensorflow-rocm": "py-tensorflow",
    "mxnet": "mxnet",
    "mxnet-mkl": "mxnet",
}
#: The frameworks' packages, unless that is py- and the recipe's variant.
PACKAGES = {"pytorch": "py-torch", "mxnet": "mxnet", "spark": "py-pyspark"}
#: The frameworks' packages to the names that people know.
FRAMEWORKS = {"py-torch": "PyTorch", "py-tensorflow": "TensorFlow"}
#: Spack packages that a Horovod can take from an interpreter, to those of them that they need.
_TAKEN = {
    "py-torch": ["py-numpy"],
    "py-tensorflow": ["py-numpy", "py-keras"],
    "mxnet": ["py-numpy"],
    "py-keras": ["py-numpy"],
    "py-numpy": [],
    "py-cffi": [],
    "py-cloudpickle": [],
    "py-mpi4py": [],
    "py-packaging": [],
    "py-psutil": [],
    "py-pyyaml": [],
    "py-setuptools": [],
}
_MARK = "# Written by ./hvd externals"
#: Seconds; a framework on a parallel file system is slow to import.
_TIMEOUT = 300


def ask(python: str, environment: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """Return what the interpreter ``python`` has, as ``hvd.host.interpreter`` prints it."""
    command = [python, "-s", pathlib.Path(interpreter.__file__)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, env=environment
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except OSError as error:
        raise HvdError(
            f"{python}: {error.strerror}", "give the interpreter's path with --python"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HvdError(f"{python} does not end within {_TIMEOUT} s", "see what it does") from error
    except (ValueError, IndexError) as error:
        raise HvdError(f"{python} is not a Python interpreter", "give one: --python") from error
    if done.returncode < 0:
        raise HvdError(
            f"{python} dies of {signal.Signals(-done.returncode).name} as it imports a framework",
            "install the framework again; one below .hvd goes with: ./hvd clean frameworks",
        )
    if found is None:
        said = (done.stderr.strip().splitlines() or ["nothing is said"])[-1]
        raise HvdError(f"{python} does not run: {said}", "load the modules that it needs first")
    for name, problem in found["broken"].items():
        raise HvdError(
            f"{python} has {name} but cannot import it: {problem}",
            "load the modules that it needs first, or remove the broken installation",
        )
    for item in found["distributions"].values():
        item["prefix"] = _prefix(item, found["python"])
    return found


def _prefix(item: Mapping[str, str], python: Mapping[str, str]) -> str:
    """Return the prefix below which Spack finds a distribution.

    Spack looks for a Python package in the directory below the prefix that the interpreter names
    for what pip installs.  Debian's are in ``/usr/lib/python3/dist-packages`` instead, and get a
    prefix with a link to that.
    https://www.debian.org/doc/packaging-manuals/python-policy/#module-path
    """
    directory, usual = pathlib.Path(item["directory"]), pathlib.Path(python["platlib"])
    if not item["prefix"] or directory.parts[-2:] == usual.parts[-2:]:
        return item["prefix"]
    below = usual.relative_to(python["prefix"])
    prefix = paths.state() / "prefixes" / stamp.of(str(directory), str(below))[:8]
    link = prefix / below
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(directory)
    return str(prefix)


def specs(section: Mapping[str, Any]) -> Dict[str, Spec]:
    """Return the external of each package in ``section``, which :func:`packages` made."""
    return {
        name: parse(entry["externals"][0]["spec"])
        for name, entry in section.items()
        if "externals" in entry
    }


def packages(
    found: Mapping[str, Any], mpi: Optional[Mpi] = None, arch: str = ""
) -> Dict[str, Any]:
    """Return the ``packages:`` section for what :func:`ask` found.

    Args:
        mpi: the MPI to declare as well.
        arch: appended to every external's spec: ``"os=sles15 target=zen3"``.
    """
    python = found["python"]
    if not python["header"]:
        raise HvdError(
            f"{python['executable']} has no Python.h",
            "install its headers (python3-dev, python3-devel) or take another interpreter",
        )
    section = {"python": _external("python", python["version"], python["prefix"], arch)}
    if mpi:
        section[mpi.package] = _external(mpi.package, mpi.version, str(mpi.prefix), arch)
        if mpi.variables:
            # Spack sets them for what runs with it
            more = {"environment": {"set": mpi.variables}}
            section[mpi.package]["externals"][0]["extra_attributes"] = more
        section["mpi"] = {"buildable": False}
    have = by_package(found["distributions"])
    for package in [each for each in _TAKEN if each in have]:
        types = ["build", "link", "run"] if package in {*FRAMEWORKS, "mxnet"} else ["build", "run"]
        needs = [_dependency("python", python["version"], types)]
        for name in [each for each in _TAKEN[package] if each in have]:
            needs.append(_dependency(name, have[name]["version"], ["build", "run"]))
        if package == "py-mpi4py":
            if not mpi:
                # it would be declared without the library that it loads
                continue
            needs.append({**_dependency(mpi.package, mpi.version, ["link"]), "virtuals": "mpi"})
        variants = _variants(package, found["frameworks"])
        version, prefix = have[package]["version"], have[package]["prefix"] or python["prefix"]
        section[package] = _external(package, version, prefix, arch, variants, needs)
    return section


def for_site(found: Mapping[str, Any], environment: Environment) -> Dict[str, Any]:
    """Return what :func:`packages` does, to replace the site's own, and with the site's MPI."""
    if not environment.site:
        raise HvdError(
            f"{environment.name} takes what ./hvd finds on this machine",
            "leave its name out, and give a file with --scope",
        )
    system = dict(re.findall(r"\b(os)=(\S+)", environment.specs[0]))["os"]
    # a colon more tells Spack that lower files do not add to this
    return {f"{key}:": value for key, value in packages(found, None, f"os={system}").items()}


def stack(found: Mapping[str, Any]) -> str:
    """Return ``cuda`` or ``rocm`` where frameworks are built for it, as Horovod must be, or ""."""
    built_for = (known for known in found["frameworks"].values() if known)
    stacks = [name for known in built_for for name in ("cuda", "rocm") if known.get(name)]
    return stacks[0] if stacks else ""


def write(section: Mapping[str, Any], scope: pathlib.Path, origin: str) -> None:
    """Write ``section`` as a configuration file, whole or not at all."""
    if scope.exists() and not scope.read_text().startswith(_MARK):
        raise HvdError(
            f"{scope} was not written by ./hvd externals",
            "move it away, or give another file with --scope",
        )
    text = f"{_MARK} --python {origin}; it may write this file again.\n{dump(section)}"
    write_atomically(scope, text.encode())


def dump(section: Mapping[str, Any]) -> str:
    """Return ``section`` as YAML, below the key ``packages``."""
    return yaml.safe_dump({"packages": dict(section)}, sort_keys=False, default_flow_style=None)


def find_mpi(found: Mapping[str, Any]) -> Optional[Mpi]:
    """Return the MPI on PATH, or else that in the interpreter's own prefix."""
    return mpi_module.find() or mpi_module.find(
        str(pathlib.Path(found["python"]["prefix"], "bin"))
    )


def by_package(distributions: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``distributions`` by the names of their Spack packages."""
    return {_RENAMED.get(name, f"py-{name}"): item for name, item in distributions.items()}


def spack_version(version: str) -> str:
    """Return a distribution's version without its local part, which Spack could not compare."""
    return re.sub(r"\+.*$", "", version)


def _external(
    package: str,
    version: str,
    prefix: str,
    arch: str,
    variants: str = "",
    dependencies: Optional[List[Dict[str, Any]]] = None,
) -> Dict[str, Any]:
    spec = f"{package}@{spack_version(version)}{variants} {arch}".strip()
    external: Dict[str, Any] = {"spec": spec, "prefix": prefix}
    if dependencies:
        external["dependencies"] = dependencies
    # another one, built by Spack, would stand in the way of this one at run time
    return {"buildable": False, "externals": [external]}


def _dependency(package: str, version: str, deptypes: List[str]) -> Dict[str, Any]:
    return {"spec": f"{package}@{spack_version(version)}", "deptypes": deptypes}


def _variants(package: str, frameworks: Mapping[str, Any]) -> str:
    known = frameworks.get(package.replace("py-", "", 1))
    if known is None:
        return ""

    def switch(name: str, on: object) -> str:
        return f"+{name}" if on else f"~{name}"

    if package == "mxnet":
        # an interpreter that has it can import it
        return "+python" + "".join(switch(name, on) for name, on in known.items())
    gpu = switch("rocm", known["rocm"]) + switch("cuda", known["cuda"])
    architectures = [each for each in known["architectures"] if each.isdigit()]
    if known["cuda"] and architectures:
        gpu += f" cuda_arch={','.join(architectures)}"
    if package == "py-tensorflow":
        # its nccl is on by default, but only there with GPUs
        return switch("nccl", known["cuda"] or known["rocm"]) + gpu
    if not known["distributed"]:
        return f"~distributed{gpu}"
    return switch("gloo", known["gloo"]) + switch("mpi", known["mpi"]) + gpu
