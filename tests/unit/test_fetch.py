"""What is fetched: whole and with the recipe's checksum, or an error that names it."""

import contextlib
import functools
import hashlib
import http.server
import socket
import subprocess
import threading

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import clone, mirror, python_index
from hvd.fetch.mirror import Source
from hvd.model.versions import Pin
from tests.checkout import commit, git

NINES = "9" * 64
RELEASE = (
    "http://127.0.0.1:9/o/compiler-wrapper/releases/download/v1.1.0/compiler-wrapper-1.1.0.tar.gz"
)


def source(**changes):
    values = {
        "name": "py-horovod",
        "version": "0.28.1",
        "url": "https://example.org/packages/source/h/horovod/horovod-0.28.1.tar.gz",
        "sha256": NINES,
        "path": f"_source-cache/archive/99/{NINES}.tar.gz",
    }
    return Source(**{**values, **changes})


def test_a_distribution_comes_by_name_from_the_python_index(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(python_index, "fetch", lambda *words: asked.append(words))
    wanted = source()
    assert mirror.fill([wanted], tmp_path, {}, tmp_path / "log") == 1
    assert asked == [("horovod", "horovod-0.28.1.tar.gz", NINES, tmp_path / wanted.path)]


def test_what_is_there_or_local_is_not_fetched(tmp_path):
    here = source(url="http://127.0.0.1:9/x")
    (tmp_path / here.path).parent.mkdir(parents=True)
    (tmp_path / here.path).write_bytes(b"")
    local = source(url="file:///packages/compiler_wrapper/cc.sh", path="cc")
    assert mirror.fill([here, local], tmp_path, {}, tmp_path / "log") == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "", "url": ""}, "no sha256"),
        ({"url": "http://127.0.0.1:9/libyaml-0.2.5.tar.gz"}, "http://127.0.0.1:9/libyaml"),
    ],
)
def test_a_source_that_cannot_be_had_is_named(tmp_path, changes, said):
    with pytest.raises(HvdError, match=f"py-horovod@0.28.1.*{said}"):
        mirror.fill([source(**changes)], tmp_path, {}, tmp_path / "log")
    assert not (tmp_path / source().path).exists()


def test_a_release_is_made_from_its_tag_where_it_cannot_be_downloaded(tmp_path):
    root = tmp_path / "compiler-wrapper"
    root.mkdir()
    (root / "cc.sh").write_text("#!/bin/sh\n")
    commit(root)
    git(root, "tag", "v1.1.0")
    archive = f"git -C {root} archive --format=tar --prefix=compiler-wrapper-1.1.0/ v1.1.0"
    packed = subprocess.run(f"{archive} | gzip -n", shell=True, check=True, capture_output=True)
    sha256 = hashlib.sha256(packed.stdout).hexdigest()
    wanted = source(url=RELEASE, sha256=sha256, path="a/wrapper.tar.gz")
    where = (tmp_path / "mirror", {"compiler-wrapper": str(root)}, tmp_path / "log")
    assert mirror.fill([wanted], *where) == 1
    assert python_index.digest(tmp_path / "mirror" / wanted.path) == sha256
    # another checksum than the recipe's
    with pytest.raises(HvdError, match="with the checksum of the recipe"):
        mirror.fill([source(url=RELEASE, path="b.tar.gz")], *where)
    assert not (tmp_path / "mirror" / "b.tar.gz").exists()


CONTENT = b"an sdist, for all that matters here"
FILE = "horovod-0.28.1.tar.gz"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Python index on loopback with one file of one project."""
    root = tmp_path / "index"
    (root / "simple" / "horovod").mkdir(parents=True)
    (root / "files").mkdir()
    (root / "files" / FILE).write_bytes(CONTENT)
    page = f'<!DOCTYPE html><html><body><a href="/files/{FILE}">{FILE}</a></body></html>'
    (root / "simple" / "horovod" / "index.html").write_text(page)

    stop = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if not self.path.startswith("/drip/"):
                return super().do_GET()
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    self.wfile.write(b" ")

    handler = functools.partial(Handler, directory=root)
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{httpd.server_port}/simple"
    monkeypatch.setattr(python_index, "pip_settings", lambda: {"index-url": url})
    python_index.wheels.cache_clear()
    yield root
    stop.set()
    httpd.shutdown()
    httpd.server_close()


def test_the_file_arrives_whole_or_not_at_all(server, tmp_path):
    destination = tmp_path / "mirror" / FILE
    python_index.fetch("horovod", FILE, SHA256, destination)
    assert destination.read_bytes() == CONTENT
    assert list(destination.parent.iterdir()) == [destination]
    destination.unlink()
    (server / "files" / FILE).write_bytes(b"something else")
    with pytest.raises(HvdError, match="hashes to") as caught:
        python_index.fetch("horovod", FILE, SHA256, destination)
    assert SHA256[:12] in caught.value.message and not list(destination.parent.iterdir())


@pytest.mark.parametrize(
    ("project", "filename", "message"),
    [
        ("horovod", "horovod-9.tar.gz", "none has horovod in this version"),
        ("horovods", "horovods-1.tar.gz", "does not have horovods"),
    ],
)
def test_what_is_missing_is_said(server, tmp_path, project, filename, message):
    with pytest.raises(HvdError, match=message) as caught:
        python_index.fetch(project, filename, SHA256, tmp_path / filename)
    assert "pip config list" in caught.value.remedy


def test_link_directories_come_first(tmp_path, monkeypatch):
    links = tmp_path / "wheels"
    links.mkdir()
    (links / FILE).write_bytes(CONTENT)
    settings = {"find-links": str(links), "index-url": "http://127.0.0.1:9/simple"}
    monkeypatch.setattr(python_index, "pip_settings", lambda: settings)
    python_index.fetch("horovod", FILE, SHA256, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_pips_settings_are_read_environment_first(monkeypatch):
    listed = "global.index-url='https://site.example/simple'\n:env:.cert='/etc/ssl/site.pem'\n"
    listed += ":env:.index-url='https://env.example/simple'\nglobal.timeout='60'\n"
    monkeypatch.setattr(python_index, "_pip", lambda *_: listed)
    settings = python_index.pip_settings()
    assert settings["index-url"] == "https://env.example/simple"
    assert settings["cert"] == "/etc/ssl/site.pem"


def test_wheels_of_every_index_are_listed(server, tmp_path, monkeypatch):
    more = tmp_path / "more" / "horovod"
    more.mkdir(parents=True)
    (more / "horovod-0.28.1-py3-none-any.whl").write_bytes(CONTENT)
    page = server / "simple" / "horovod" / "index.html"
    names = [f"horovod-0.28.{number}-py3-none-any.whl" for number in ("0", "2b1")]
    links = [f'<a href="/files/{name}">{name}</a>' for name in names]
    page.write_text(page.read_text().replace("</body>", "".join([*links, "</body>"])))
    both = {**python_index.pip_settings(), "extra-index-url": more.parent.as_uri()}
    monkeypatch.setattr(python_index, "pip_settings", lambda: both)
    versions = [str(version) for version, _ in python_index.wheels("horovod")]
    assert versions == ["0.28.0", "0.28.1"]


def test_an_index_that_does_not_answer_is_not_one_without_wheels(server, monkeypatch):
    assert not python_index.wheels("horovods")
    settings = {**python_index.pip_settings(), "timeout": "0.5"}
    monkeypatch.setattr(python_index, "pip_settings", lambda: settings)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, error in ((9, "ConnectionError"), (silent.getsockname()[1], "ReadTimeout")):
            settings["extra-index-url"] = f"http://127.0.0.1:{port}/simple"
            with pytest.raises(HvdError, match=f"127.0.0.1: {error}"):
                python_index.wheels("horovod")


def test_a_server_that_drips_is_given_up(server, tmp_path, monkeypatch):
    """It is never silent; a page, a file of an index and any other file would take for ever."""
    monkeypatch.setattr(python_index, "TIMEOUT", 0.2)
    settings = python_index.pip_settings()
    monkeypatch.setattr(python_index, "pip_settings", lambda: settings)
    page = server / "simple" / "horovod" / "index.html"
    page.write_text(page.read_text().replace("/files/", "/drip/"))
    with pytest.raises(HvdError, match=f"{FILE}: the server is too slow"):
        python_index.fetch("horovod", FILE, SHA256, tmp_path / FILE)
    drips = settings["extra-index-url"] = settings["index-url"].replace("simple", "drip")
    with pytest.raises(HvdError, match="127.0.0.1: Timeout"):
        python_index.wheels("horovod")
    with pytest.raises(HvdError, match="cannot download"):
        mirror.fill([source(url=f"{drips}/a.tar.gz")], tmp_path, {}, tmp_path / "log")


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits; the first one is what is pinned."""
    root = tmp_path / "spack"
    root.mkdir()
    commits = []
    for text in ("one", "two"):
        (root / "file").write_text(text)
        commits.append(commit(root))
    return root, Pin("1.2", commits[0])


def test_the_pinned_commit_is_checked_out(repository, tmp_path):
    root, pin = repository
    clone.ensure(str(root), pin, tmp_path / "cache" / "x", tmp_path / "log")
    assert (tmp_path / "cache" / "x" / "file").read_text() == "one"
    assert clone.commit(tmp_path / "cache" / "x") == pin.commit


def test_what_is_there_is_kept(repository, tmp_path):
    _, pin = repository
    (tmp_path / "x").mkdir()
    clone.ensure("/no/such/repository", pin, tmp_path / "x", tmp_path / "log")
    assert list((tmp_path / "x").iterdir()) == []
    assert clone.commit(tmp_path / "x") == ""


@pytest.mark.parametrize(
    ("address", "commit"),
    [("/no/such/repository", ""), ("https://127.0.0.1:9/spack.git", ""), ("", "f" * 40)],
)
def test_what_cannot_be_fetched_leaves_nothing(repository, tmp_path, address, commit):
    root, pin = repository
    wanted = Pin("1.2", commit or pin.commit)
    with pytest.raises(HvdError) as caught:
        clone.ensure(address or str(root), wanted, tmp_path / "cache" / "x", tmp_path / "log")
    assert address in caught.value.message and wanted.commit[:12] in caught.value.message
    assert list((tmp_path / "cache").iterdir()) == []
