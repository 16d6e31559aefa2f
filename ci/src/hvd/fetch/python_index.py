"""The Python index that pip is configured for, as a source of files with known checksums."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Tuple, TypeVar

import requests
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from hvd.core.errors import HvdError

#: Where pip looks when nothing else is configured; asked of pip itself.
_ASK_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_SETTING = re.compile(r"^(?P<scope>[\w.-]+|:env:)\.(?P<key>[\w-]+)='(?P<value>.*)'$")
_CHUNK = 1 << 20
#: Seconds without an answer: pip's own default.
TIMEOUT = 15.0
#: In four times that, a page is whole, and a file grows by so many bytes.
_LEAST = 1 << 16
_REMEDY = "see which indexes pip uses with: python3 -m pip config list"
_Answer = TypeVar("_Answer")
#: What writes a file of an index to a path.
_Write = Callable[[pathlib.Path], object]


@functools.lru_cache(None)
def wheels(project: str) -> Tuple[Tuple[Version, FrozenSet[Tag]], ...]:
    """Return version and tags of each wheel of ``project`` that pip can find."""
    problems: List[str] = []
    found = []
    for file, _ in _everywhere(pip_settings(), project, problems):
        with contextlib.suppress(InvalidWheelFilename):
            name, version, _, tags = parse_wheel_filename(file)
            if name == canonicalize_name(project) and not version.is_prerelease:
                found.append((version, tags))
    # an index that is down must not pass for one without wheels
    if any(not problem.endswith(_unknown(project)) for problem in problems):
        raise HvdError(f"{project}: {'; '.join(problems)}", _REMEDY)
    return tuple(found)


def fetch(project: str, filename: str, sha256: str, destination: pathlib.Path) -> None:
    """Download ``filename`` of ``project`` to ``destination``, whole or not at all."""
    settings, problems = pip_settings(), []
    wanted = _normal(filename)
    with scratch(destination) as directory:
        for name, write in _everywhere(settings, project, problems):
            if _normal(name) != wanted:
                continue
            # a name of its own: what was given up may still be writing
            file = directory / str(len(problems))
            try:
                steadily(functools.partial(write, file), _timeout(settings), file)
            except OSError as error:  # those of requests are among them
                problems.append(f"{name}: {error}")
                continue
            # the checksum that counts is the recipe's, not the index's
            if place(file, sha256, destination):
                return
            problems.append(f"{name} hashes to {digest(file)[:12]}... instead")
    raise HvdError(
        f"{filename} (sha256 {sha256[:12]}...) is on none of the Python indexes of pip: "
        + ("; ".join(problems) or f"none has {project} in this version"),
        _REMEDY,
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
    """pip's settings: ``index-url``, ``extra-index-url``, ``find-links``, ``cert``, ``timeout``.

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


def _everywhere(
    settings: Dict[str, str], project: str, problems: List[str]
) -> Iterator[Tuple[str, _Write]]:
    """Yield every file that pip can find of ``project``, by name; its directories may have others.

    Indexes without the project, or that cannot be read, are named in ``problems``.
    """
    for link in settings.get("find-links", "").split():
        yield from _local(link)
    # half a second, which commands that fetch nothing need not spend
    import pypi_simple

    for url in [settings["index-url"], *settings.get("extra-index-url", "").split()]:
        if url.startswith("file:"):
            yield from _local(f"{url}/{project}")
            continue
        host, session = urllib.parse.urlparse(url).hostname, _Session()
        session.timeout = _timeout(settings)
        session.verify = settings.get("cert", True)
        client = pypi_simple.PyPISimple(url, session=session)
        try:
            page = steadily(functools.partial(client.get_project_page, project), session.timeout)
        except pypi_simple.NoSuchProjectError:
            problems.append(f"{host} {_unknown(project)}")
            continue
        except (requests.RequestException, pypi_simple.UnsupportedRepoVersionError) as error:
            problems.append(f"{host}: {type(error).__name__}")
            continue
        for each in page.packages:
            yield each.filename, functools.partial(client.download_package, each, verify=False)


def steadily(
    ask: Callable[[], _Answer], timeout: float, file: Optional[pathlib.Path] = None
) -> _Answer:
    """Return what ``ask`` does unless it takes for ever: a server may send a byte a second.

    Args:
        timeout: seconds of silence after which ``ask`` ends by itself.
        file: what it writes, if it may take longer than four times that.
    """
    answer: concurrent.futures.Future = concurrent.futures.Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    # a daemon, for which an exit does not wait
    threading.Thread(target=work, daemon=True).start()
    size = 0
    while True:
        try:
            return answer.result(4 * timeout)
        except concurrent.futures.TimeoutError:
            before, size = size, file.stat().st_size if file and file.exists() else 0
            if size < before + _LEAST:
                raise requests.Timeout("the server is too slow") from None


def _timeout(settings: Dict[str, str]) -> float:
    return float(settings.get("timeout", TIMEOUT))


class _Session(requests.Session):
    """Requests end when the server has said nothing for ``timeout`` seconds."""

    timeout = TIMEOUT

    def request(self, *words, **options):  # type: ignore[override]
        # who has no limit says None
        timeout = options.pop("timeout", None) or self.timeout
        return super().request(*words, timeout=timeout, **options)


def _local(url: str) -> Iterator[Tuple[str, _Write]]:
    """Yield the files in a directory, which is a path or a ``file:`` address."""
    for path in sorted(pathlib.Path(urllib.parse.urlparse(url).path).glob("*")):
        yield path.name, functools.partial(shutil.copyfile, path)


def _unknown(project: str) -> str:
    return f"does not have {project}"


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
