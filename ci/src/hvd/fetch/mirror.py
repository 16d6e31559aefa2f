"""Fill a Spack source mirror with what an environment will build."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import urllib.parse
from typing import Callable, List, Mapping

import requests
import urllib3

from hvd.core import process
from hvd.core.errors import HvdError
from hvd.fetch import clone, python_index
from hvd.model.versions import Pin

#: A Python distribution's address in a recipe: ``.../<first letter>/<project>/<file>``.
DISTRIBUTION = re.compile(r"/packages/[^/]+/\w/(?P<project>[^/]+)/(?P<file>[^/]+)$")
#: A release of a project on GitHub.
_RELEASE = re.compile(r"/(?P<name>[^/]+)/releases/download/(?P<tag>[^/]+)/(?P<stem>.+)\.tar\.gz$")


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
    """
    fetched = 0
    for source in sources:
        destination = mirror / source.path
        if source.url.startswith("file:") or destination.is_file():
            continue
        on_source(source)
        package = f"{source.name}@{source.version}"
        if not source.sha256:
            raise HvdError(
                f"{package}: no sha256 for {source.url or 'its source'} in the recipe",
                "use a version that has one, or declare the package as an external",
            )
        path = urllib.parse.urlparse(source.url).path
        distribution, release = DISTRIBUTION.search(path), _RELEASE.search(path)
        if distribution:
            project, file = distribution.group("project", "file")
            python_index.fetch(project, file, source.sha256, destination)
        elif not _download(source, destination):
            address = addresses.get(release["name"]) if release else None
            if not address or not _archive(source, release, address, destination, log):
                raise HvdError(
                    f"{package}: cannot download {source.url} with the checksum of the recipe",
                    f"put the file at {destination}, or declare {source.name} as an external",
                )
        fetched += 1
    return fetched


def _download(source: Source, destination: pathlib.Path) -> bool:
    """Fetch the recipe's own URL; False where it has another file, or cannot be reached."""
    with python_index.scratch(destination) as directory:
        file = directory / "source"

        def get() -> None:
            with requests.get(source.url, stream=True, timeout=python_index.TIMEOUT) as reply:
                reply.raise_for_status()
                with open(file, "wb") as sink:
                    shutil.copyfileobj(reply.raw, sink)

        try:
            python_index.steadily(get, python_index.TIMEOUT, file)
        except (requests.RequestException, urllib3.exceptions.HTTPError):
            return False
        return python_index.place(file, source.sha256, destination)


def _archive(
    source: Source, release: re.Match, address: str, destination: pathlib.Path, log: pathlib.Path
) -> bool:
    """Make a release's tarball from its tag; False where it is not the released one."""
    with python_index.scratch(destination) as directory:
        checkout, packed = directory / "checkout", directory / "source.tar.gz"
        tag = f"refs/tags/{release['tag']}"
        clone.ensure(address, Pin(release["tag"], tag), checkout, log)
        # gzip itself and not git's or Python's zlib: the bytes of the release count
        process.run(
            ["git", "-C", checkout, "-c", "tar.tar.gz.command=gzip -cn", "archive"]
            + ["--format=tar.gz", "-o", packed, f"--prefix={release['stem']}/", "HEAD"],
            log=log,
        )
        return python_index.place(packed, source.sha256, destination)
