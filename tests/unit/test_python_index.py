"""index: files from the index that pip is configured for, with the recipe's checksum."""

import functools
import hashlib
import http.server
import socket
import threading

import pytest

from hvd.core.errors import HvdError
from hvd.fetch import python_index

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

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=root)
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{httpd.server_port}/simple"
    monkeypatch.setattr(python_index, "pip_settings", lambda: {"index-url": url})
    yield root
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
    ("index", "project", "filename", "message"),
    [
        ("", "horovod", "horovod-9.tar.gz", "none has horovod in this version"),
        ("", "horovods", "horovods-1.tar.gz", "does not have horovods"),
        ("http://127.0.0.1:9/simple", "horovod", FILE, "127.0.0.1: ConnectionError"),
    ],
)
def test_what_is_missing_is_said(server, tmp_path, monkeypatch, index, project, filename, message):
    if index:
        monkeypatch.setattr(python_index, "pip_settings", lambda: {"index-url": index})
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


def test_every_file_of_a_project_is_listed(server, tmp_path, monkeypatch):
    more = tmp_path / "more" / "horovod"
    more.mkdir(parents=True)
    (more / "horovod-0.29.0.tar.gz").write_bytes(CONTENT)
    page = server / "simple" / "horovod" / "index.html"
    link = '<a href="/files/x-{0}.tar.gz#sha256=ab" {1}>horovod-{0}.tar.gz</a></body>'
    text = page.read_text().replace("</body>", link.format("0.27.0", 'data-yanked="broken"'))
    text = text.replace("</body>", link.format("0.28.0", 'data-requires-python="&gt;=3.6"'))
    page.write_text(text)
    both = {**python_index.pip_settings(), "extra-index-url": more.parent.as_uri()}
    monkeypatch.setattr(python_index, "pip_settings", lambda: both)
    assert python_index.files("horovod") == [
        python_index.File(FILE),
        python_index.File("horovod-0.28.0.tar.gz", ">=3.6", "ab"),
        python_index.File("horovod-0.29.0.tar.gz"),
    ]


def test_an_index_that_does_not_answer_is_not_one_without_news(server, monkeypatch):
    with pytest.raises(HvdError, match="127.0.0.1 does not have horovods"):
        python_index.files("horovods")
    settings = {**python_index.pip_settings(), "timeout": "0.5"}
    monkeypatch.setattr(python_index, "pip_settings", lambda: settings)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, error in ((9, "ConnectionError"), (silent.getsockname()[1], "ReadTimeout")):
            settings["extra-index-url"] = f"http://127.0.0.1:{port}/simple"
            with pytest.raises(HvdError, match=f"127.0.0.1: {error}"):
                python_index.files("horovod")
