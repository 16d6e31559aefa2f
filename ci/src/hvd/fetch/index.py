"""The Python index that pip is configured for, as a source of files with known checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse
from typing import TYPE_CHECKING, Dict, Iterator, List

import requests

from hvd.core.errors import HvdError

if TYPE_CHECKING:
    import pypi_simple

#: Where pip looks when nothing else is configured; asked of pip itself.
_ASK_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_SETTING = re.compile(r"^(?P<scope>[\w.-]+|:env:)\.(?P<key>[\w-]+)='(?P<value>.*)'$")
_CHUNK = 1 << 20


def fetch(project: str, filename: str, sha256: str, destination: pathlib.Path) -> None:
    """Download ``filename`` of ``project`` to ``destination``, checked.

    Args:
        project: the project's name on the index.
        filename: the file's name as in the recipe's URL; compared in normalized form.
        sha256: what the file must hash to.
        destination: where it goes; written at once and whole, or not at all.

    Raises:
        HvdError: no index has the file, or what it has is another file.
    """
    settings = pip_settings()
    problems: List[str] = []
    for candidate in _candidates(settings, project, filename, problems):
        if _save(candidate, sha256, destination, problems):
            return
    raise HvdError(
        f"{filename} (sha256 {sha256[:12]}...) is on none of the Python indexes of pip: "
        + ("; ".join(problems) or "no index is configured"),
        "see which indexes pip uses with: python3 -m pip config list",
    )


def pip_settings() -> Dict[str, str]:
    """pip's settings: ``index-url``, ``extra-index-url``, ``find-links``, ``cert``.

    From ``pip config list``, the environment before the files, as pip itself ranks them.
    """
    listed = _pip("-m", "pip", "config", "list")
    settings: Dict[str, str] = {}
    for line in listed.splitlines():
        match = _SETTING.match(line.strip())
        if not match:
            continue
        if match["scope"] == ":env:":
            settings[match["key"]] = match["value"]
        elif match["scope"] in ("global", "install", "download"):
            settings.setdefault(match["key"], match["value"])
    settings.setdefault("index-url", _pip("-c", _ASK_DEFAULT).strip())
    return {key: value.replace("\\n", " ") for key, value in settings.items()}


def _pip(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True
    ).stdout


def _candidates(
    settings: Dict[str, str], project: str, filename: str, problems: List[str]
) -> Iterator[Source]:
    """Files called ``filename``: first in pip's link directories, then on its indexes."""
    # half a second, which commands that fetch nothing need not spend
    import pypi_simple

    for link in settings.get("find-links", "").split():
        directory = pathlib.Path(urllib.parse.urlparse(link).path)
        if (directory / filename).is_file():
            yield _File(directory / filename)
    for url in [settings["index-url"], *settings.get("extra-index-url", "").split()]:
        if url.startswith("file:"):
            directory = pathlib.Path(urllib.parse.urlparse(url).path, project)
            if (directory / filename).is_file():
                yield _File(directory / filename)
            continue
        session = requests.Session()
        if "cert" in settings:
            session.verify = settings["cert"]
        host = urllib.parse.urlparse(url).hostname
        client = pypi_simple.PyPISimple(url, session=session)
        try:
            page = client.get_project_page(project)
        except pypi_simple.NoSuchProjectError:
            problems.append(f"{host} does not have {project}")
            continue
        except (requests.RequestException, pypi_simple.UnsupportedRepoVersionError) as error:
            problems.append(f"{host}: {type(error).__name__}")
            continue
        found = [p for p in page.packages if _normal(p.filename) == _normal(filename)]
        if not found:
            problems.append(f"{host} has {project} but not {filename}")
        yield from (_Remote(client, package) for package in found)


class Source:
    """A file to be had somewhere."""

    name: str

    def write(self, destination: pathlib.Path) -> None:
        raise NotImplementedError


class _File(Source):
    def __init__(self, path: pathlib.Path) -> None:
        self.name = str(path)
        self.path = path

    def write(self, destination: pathlib.Path) -> None:
        destination.write_bytes(self.path.read_bytes())


class _Remote(Source):
    def __init__(self, client: pypi_simple.PyPISimple, package) -> None:
        self.name = package.filename
        self._client = client
        self._package = package

    def write(self, destination: pathlib.Path) -> None:
        # the checksum that counts is the recipe's and is checked by the caller
        self._client.download_package(self._package, destination, verify=False)


def _save(source: Source, sha256: str, destination: pathlib.Path, problems: List[str]) -> bool:
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{destination.name}-", dir=destination.parent)
    os.close(handle)
    scratch = pathlib.Path(name)
    try:
        source.write(scratch)
        got = digest(scratch)
        if got != sha256:
            problems.append(f"{source.name} hashes to {got[:12]}... instead")
            return False
        os.chmod(scratch, 0o644)
        os.replace(scratch, destination)
        return True
    except (OSError, requests.RequestException) as error:
        problems.append(f"{source.name}: {error}")
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()


def digest(path: pathlib.Path) -> str:
    """The sha256 of the file ``path``, in hexadecimal."""
    total = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            total.update(chunk)
    return total.hexdigest()


def _normal(filename: str) -> str:
    """File names differ between indexes and recipes in ``-`` and ``_`` only (PEP 625)."""
    return filename.lower().replace("-", "_")
