"""Fill a Spack source mirror with what an environment will build."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import tempfile
import urllib.parse
from typing import Callable, List, Optional

import requests

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.fetch import clone, index
from hvd.model.pins import Pin

#: Run by ``spack python`` in the environment: prints everything that is still to be fetched.

#: A Python distribution's address in a recipe: ``.../<first letter>/<project>/<file>``.
_DISTRIBUTION = re.compile(r"/packages/[^/]+/\w/(?P<project>[^/]+)/(?P<file>[^/]+)$")
#: A release of a project on GitHub.
_RELEASE = re.compile(r"/(?P<name>[^/]+)/releases/download/(?P<tag>[^/]+)/(?P<stem>.+)\.tar\.gz$")
#: Seconds to wait for a server.
_TIMEOUT = 20


@dataclasses.dataclass(frozen=True)
class Source:
    """One file that Spack wants: from where, with which sha256, at which place in a mirror."""

    name: str
    version: str
    url: str
    sha256: str
    path: str


def parse(listing: str) -> List[Source]:
    """The sources that ``hvd.solve.queries.sources`` printed."""
    return [Source(**entry) for entry in json.loads(listing.splitlines()[-1])]


def fill(
    sources: List[Source],
    mirror: pathlib.Path,
    addresses: dict,
    log: pathlib.Path,
    on_source: Optional[Callable[[Source], None]] = None,
) -> int:
    """Put every source into ``mirror`` that is not there yet.

    Args:
        sources: what Spack wants.
        mirror: root of the mirror.
        addresses: git addresses by project, for sources that are no Python distribution.
        log: log of git.
        on_source: called before each download.

    Returns:
        How many files were fetched.

    Raises:
        HvdError: one cannot be had; names package, version and what to do.
    """
    fetched = 0
    for source in sources:
        destination = mirror / source.path
        if source.url.startswith("file:") or destination.is_file():
            continue
        if on_source:
            on_source(source)
        try:
            _fetch(source, destination, addresses, log)
        except HvdError as error:
            raise HvdError(
                f"{source.name}@{source.version}: {error.message}", error.remedy, error.log
            ) from error
        fetched += 1
    return fetched


def _fetch(source: Source, destination: pathlib.Path, addresses: dict, log: pathlib.Path) -> None:
    if not source.sha256:
        raise HvdError(
            f"the recipe gives no sha256 for {source.url or 'its source'}",
            "use a version that has one, or declare the package as an external",
        )
    path = urllib.parse.urlparse(source.url).path
    distribution = _DISTRIBUTION.search(path)
    if distribution:
        index.fetch(distribution["project"], distribution["file"], source.sha256, destination)
        return
    if _download(source, destination):
        return
    release = _RELEASE.search(path)
    if release and release["name"] in addresses:
        _archive(source, release, addresses[release["name"]], destination, log)
        return
    raise HvdError(
        f"{source.url} cannot be reached, and it is no Python distribution",
        f"put the file at {destination}, or declare {source.name} as an external",
    )


def _download(source: Source, destination: pathlib.Path) -> bool:
    """Fetch the recipe's own URL; False where the server cannot be reached."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        file = pathlib.Path(scratch, "source")
        try:
            with requests.get(source.url, stream=True, timeout=_TIMEOUT) as reply:
                reply.raise_for_status()
                with open(file, "wb") as sink:
                    shutil.copyfileobj(reply.raw, sink)
        except requests.RequestException:
            return False
        return _place(file, source, destination)


def _archive(
    source: Source, release, address: str, destination: pathlib.Path, log: pathlib.Path
) -> None:
    """Make a release's tarball from its tag; the recipe's sha256 says whether it is the one."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        checkout = pathlib.Path(scratch, "checkout")
        tag = f"refs/tags/{release['tag']}"
        clone.ensure(address, Pin(release["tag"], tag), checkout, log)
        packed = pathlib.Path(scratch, "source.tar.gz")
        # gzip itself and not git's or Python's zlib: the bytes of the release count
        process.run(
            ["git", "-C", checkout, "-c", "tar.tar.gz.command=gzip -cn", "archive"]
            + ["--format=tar.gz", "-o", packed, f"--prefix={release['stem']}/", "HEAD"],
            log=log,
        )
        if not _place(packed, source, destination):
            raise HvdError(
                f"the archive of {release['tag']} at {address} is not the released file",
                f"put the released file at {destination}",
            )


def _place(file: pathlib.Path, source: Source, destination: pathlib.Path) -> bool:
    if index.digest(file) != source.sha256:
        return False
    file.chmod(0o644)
    file.replace(destination)
    return True
