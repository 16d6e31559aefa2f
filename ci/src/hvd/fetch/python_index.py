"""The Python index that pip is configured for, as a source of files with known checksums."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import requests

from hvd.core.errors import HvdError

#: Where pip looks when nothing else is configured; asked of pip itself.
_ASK_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_SETTING = re.compile(r"^(?P<scope>[\w.-]+|:env:)\.(?P<key>[\w-]+)='(?P<value>.*)'$")
_CHUNK = 1 << 20
#: The name of a file that may be the one, for messages, and what writes it to a path.
_Candidate = Tuple[str, Callable[[pathlib.Path], object]]


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a project on an index; what the index does not say is empty."""

    name: str
    requires_python: str = ""
    sha256: str = ""


def files(project: str) -> List[File]:
    """Return every file of ``project`` that is not yanked, from all indexes of pip.

    Raises:
        HvdError: an index cannot be reached, or none has the project.
    """
    settings, found, problems = pip_settings(), [], []
    for url in _indexes(settings):
        if url.startswith("file:"):
            found += [File(each.name) for each in _directory(f"{url}/{project}").glob("*")]
            continue
        # an index that is down must not pass for one without news
        page, problem = _page(url, settings.get("cert"), project)
        if page is None:
            problems.append(problem)
            continue
        found += [
            File(each.filename, each.requires_python or "", each.digests.get("sha256", ""))
            for each in page.packages
            if not each.is_yanked
        ]
    if not found or any(not problem.endswith(_unknown(project)) for problem in problems):
        raise HvdError(
            f"{project}: " + ("; ".join(problems) or "no index is configured"),
            "see which indexes pip uses with: python3 -m pip config list",
        )
    return found


def fetch(project: str, filename: str, sha256: str, destination: pathlib.Path) -> None:
    """Download ``filename`` of ``project`` to ``destination``, whole or not at all.

    Raises:
        HvdError: no index has the file with the checksum ``sha256``.
    """
    problems: List[str] = []
    with scratch(destination) as directory:
        file = directory / "file"
        for name, write in _candidates(pip_settings(), project, filename, problems):
            try:
                write(file)
            except OSError as error:  # those of requests are among them
                problems.append(f"{name}: {error}")
                continue
            if place(file, sha256, destination):
                return
            problems.append(f"{name} hashes to {digest(file)[:12]}... instead")
    raise HvdError(
        f"{filename} (sha256 {sha256[:12]}...) is on none of the Python indexes of pip: "
        + ("; ".join(problems) or "no index is configured"),
        "see which indexes pip uses with: python3 -m pip config list",
    )


@contextlib.contextmanager
def scratch(destination: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary directory beside ``destination``, from which a file can be moved there."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hvd-", dir=destination.parent) as directory:
        yield pathlib.Path(directory)


def place(file: pathlib.Path, sha256: str, destination: pathlib.Path) -> bool:
    """Move ``file`` to ``destination`` if ``sha256`` is its checksum; return whether it is."""
    if digest(file) != sha256:
        return False
    file.chmod(0o644)
    file.replace(destination)
    return True


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
) -> Iterator[_Candidate]:
    """Files called ``filename``: first in pip's link directories, then on its indexes."""
    for link in settings.get("find-links", "").split():
        yield from _local(link, filename)
    for url in _indexes(settings):
        if url.startswith("file:"):
            yield from _local(f"{url}/{project}", filename)
        else:
            yield from _remote(url, settings.get("cert"), project, filename, problems)


def _indexes(settings: Dict[str, str]) -> List[str]:
    return [settings["index-url"], *settings.get("extra-index-url", "").split()]


def _directory(url: str) -> pathlib.Path:
    return pathlib.Path(urllib.parse.urlparse(url).path)


def _local(url: str, filename: str) -> Iterator[_Candidate]:
    file = _directory(url) / filename
    if file.is_file():
        yield str(file), functools.partial(shutil.copyfile, file)


def _client(url: str, cert: Optional[str]) -> Any:
    # half a second, which commands that fetch nothing need not spend
    import pypi_simple

    session = requests.Session()
    if cert:
        session.verify = cert
    return pypi_simple.PyPISimple(url, session=session)


def _unknown(project: str) -> str:
    return f"does not have {project}"


def _page(url: str, cert: Optional[str], project: str) -> Tuple[Any, str]:
    """Return the index's page of ``project``; None if there is none, and why."""
    import pypi_simple

    host = urllib.parse.urlparse(url).hostname
    try:
        return _client(url, cert).get_project_page(project), ""
    except pypi_simple.NoSuchProjectError:
        return None, f"{host} {_unknown(project)}"
    except (requests.RequestException, pypi_simple.UnsupportedRepoVersionError) as error:
        return None, f"{host}: {type(error).__name__}"


def _remote(
    url: str, cert: Optional[str], project: str, filename: str, problems: List[str]
) -> Iterator[_Candidate]:
    page, problem = _page(url, cert, project)
    if page is None:
        problems.append(problem)
        return
    host, client = urllib.parse.urlparse(url).hostname, _client(url, cert)
    found = [each for each in page.packages if _normal(each.filename) == _normal(filename)]
    if not found:
        problems.append(f"{host} has {project} but not {filename}")
    for each in found:
        # the checksum that counts is the recipe's, not the index's
        yield each.filename, functools.partial(client.download_package, each, verify=False)


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
