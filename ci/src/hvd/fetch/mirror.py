"""Fill a Spack source mirror with what an environment will build."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import urllib.parse
from typing import Callable, List, Mapping

import requests

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.fetch import clone, python_index
from hvd.model.versions import Pin

#: A Python distribution's address in a recipe: ``.../<first letter>/<project>/<file>``.
DISTRIBUTION = re.compile(r"/packages/[^/]+/\w/(?P<project>[^/]+)/(?P<file>[^/]+)$")
#: A release of a project on GitHub.
_RELEASE = re.compile(r"/(?P<name>[^/]+)/releases/download/(?P<tag>[^/]+)/(?P<stem>.+)\.tar\.gz$")
#: Seconds to wait for a server.
_TIMEOUT = 20


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that Spack wants, as ``hvd.solve.queries.sources`` lists it."""

    name: str  # of the package
    version: str  # of the package
    url: str  # empty for none
    sha256: str  # empty for none
    path: str  # in a mirror


def fill(
    sources: List[Source],
    mirror: pathlib.Path,
    addresses: Mapping[str, str],
    log: pathlib.Path,
    on_source: Callable[[Source], object] = lambda source: None,
) -> int:
    """Put every source into ``mirror`` that is not there yet, and return how many were fetched.

    Args:
        addresses: git addresses by project, for sources that are no Python distribution.
        on_source: called before each download.

    Raises:
        HvdError: one cannot be fetched; names package and version.
    """
    fetched = 0
    for source in sources:
        destination = mirror / source.path
        if source.url.startswith("file:") or destination.is_file():
            continue
        on_source(source)
        try:
            _fetch(source, destination, addresses, log)
        except HvdError as error:
            raise HvdError(
                f"{source.name}@{source.version}: {error.message}", error.remedy, error.log
            ) from error
        fetched += 1
    return fetched


def _fetch(
    source: Source, destination: pathlib.Path, addresses: Mapping[str, str], log: pathlib.Path
) -> None:
    if not source.sha256:
        raise HvdError(
            f"the recipe gives no sha256 for {source.url or 'its source'}",
            "use a version that has one, or declare the package as an external",
        )
    path = urllib.parse.urlparse(source.url).path
    distribution = DISTRIBUTION.search(path)
    if distribution:
        python_index.fetch(
            distribution["project"], distribution["file"], source.sha256, destination
        )
        return
    if _download(source, destination):
        return
    release = _RELEASE.search(path)
    if release and release["name"] in addresses:
        _archive(source, release, addresses[release["name"]], destination, log)
        return
    raise HvdError(
        f"{source.url} cannot be reached, and it is not a Python distribution",
        f"put the file at {destination}, or declare {source.name} as an external",
    )


def _download(source: Source, destination: pathlib.Path) -> bool:
    """Fetch the recipe's own URL; False where it has another file, or cannot be reached."""
    with python_index.scratch(destination) as directory:
        file = directory / "source"
        try:
            with requests.get(source.url, stream=True, timeout=_TIMEOUT) as reply:
                reply.raise_for_status()
                with open(file, "wb") as sink:
                    shutil.copyfileobj(reply.raw, sink)
        except requests.RequestException:
            return False
        return python_index.place(file, source.sha256, destination)


def _archive(
    source: Source, release: re.Match, address: str, destination: pathlib.Path, log: pathlib.Path
) -> None:
    """Make a release's tarball from its tag; the recipe's sha256 says whether it is the one."""
    with python_index.scratch(destination) as directory:
        checkout = directory / "checkout"
        tag = f"refs/tags/{release['tag']}"
        clone.ensure(address, Pin(release["tag"], tag), checkout, log)
        packed = directory / "source.tar.gz"
        # gzip itself and not git's or Python's zlib: the bytes of the release count
        process.run(
            ["git", "-C", checkout, "-c", "tar.tar.gz.command=gzip -cn", "archive"]
            + ["--format=tar.gz", "-o", packed, f"--prefix={release['stem']}/", "HEAD"],
            log=log,
        )
        if not python_index.place(packed, source.sha256, destination):
            raise HvdError(
                f"the archive of {release['tag']} at {address} is not the released file",
                f"put the released file at {destination}",
            )
