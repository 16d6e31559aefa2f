"""The command line: help, bad input, and the script ``./hvd``."""

import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from hvd.cli import commands
from hvd.cli import main as cli
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS
from hvd.host import externals
from hvd.model import environment, versions
from hvd.model.versions import pinned
from tests.checkout import script


def process(*arguments, **changes):
    return subprocess.run(
        [sys.executable, "-m", "hvd", *arguments],
        env={**os.environ, "PYTHONPATH": str(paths.SOURCE), **changes},
        capture_output=True,
        text=True,
    )


def test_help_names_every_command_and_exit_status():
    done = process("--help")
    assert done.returncode == 0 and "Usage: ./hvd" in done.stdout
    assert len(commands.COMMANDS) <= 22
    said = " ".join(done.stdout.split())
    assert all(f"{status} {stage} failed" in said for stage, status in EXIT_STATUS.items())
    assert len(set(EXIT_STATUS.values()) | {0, 1, cli.USAGE}) == len(EXIT_STATUS) + 3


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_help(hvd, name):
    module, _, attribute = commands.COMMANDS[name].place.partition(":")
    done = hvd(name, "-h")
    assert done.status == 0 and f"./hvd {name}" in done.out
    # that of --help is Click's
    assert done.out.count("<bool>") == 1 and "[[" not in done.out
    found = getattr(importlib.import_module(f"hvd.cli.{module}"), attribute)
    assert not inspect.isfunction(found) or found.__doc__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such-hvd"], "no environment is called 'no-such-hvd'"),
        (["run", "/elsewhere/local-hvd"], "'/elsewhere/local-hvd' is a path"),
        (["run", "--engine", "conda"], "conda"),
        (["run", "--spec", "zlib"], "--spec: 'zlib' is not a spec of py-horovod"),
        (["externals", "--python", "/no/such/python"], "/no/such/python"),
        (["externals", "--python", "/bin/echo"], "/bin/echo is not a Python interpreter"),
        (["test", "--require", "moon"], "no tier is called 'moon'"),
        (["clean", "log"], "did you mean 'logs'?"),
        (["lst"], "did you mean 'list'?"),
    ],
)
def test_bad_input_is_one_error_and_status_2(arguments, message):
    done = process(*arguments)
    assert done.returncode == cli.USAGE
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_an_unknown_pair_is_a_failed_setup(tmp_path):
    done = process("setup", "--engine=spack", "--pair=spack-0.1", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == EXIT_STATUS["setup"]
    assert "no pair of Spack and packages is called 'spack-0.1'" in done.stderr
    assert pinned().pairs[0].name in done.stderr


def test_an_error_of_the_system_is_one_line(hvd, monkeypatch):
    def fail(words):
        raise OSError(28, "No space left on device", "/x")

    monkeypatch.setattr(cli, "application", fail)
    done = hvd("list")
    assert done.status == cli.USAGE and "error: /x: No space left on device" in done.err


def test_a_reader_that_ends_first_is_no_error():
    command = [sys.executable, "-m", "hvd", "list"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(paths.SOURCE), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as listing:
        listing.stdout.close()
        assert listing.stderr.read() == ""


def test_environments_are_listed(hvd, monkeypatch, tmp_path):
    assert "local-hvd" in environment.names()
    assert [*json.loads(hvd("list", "--json").out)] == environment.names()
    for name, text in (("bad-hvd", b"\xff"), ("good-hvd", b"spack: {specs: [py-horovod]}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spack.yaml").write_bytes(text)
    monkeypatch.setenv("HVD_SITES", str(tmp_path))
    done = hvd("list")
    names = [line.split()[0] for line in done.out.splitlines()]
    assert "good-hvd" in names and "bad-hvd" not in names and done.status == 1
    (line,) = (line for line in done.out.splitlines() if line.startswith("polaris-hvd"))
    assert re.fullmatch(r"polaris-hvd +ALCF polaris +py-horovod@[^;]*", line)
    assert re.search("^summit-hvd +OLCF summit, retired +py-horovod@", done.out, re.MULTILINE)
    assert "bad-hvd/spack.yaml: byte 0 is not UTF-8" in done.err
    monkeypatch.setenv("HVD_SITES", str(tmp_path / "gone"))
    assert "HVD_SITES" in hvd("list").err


def test_an_environment_has_its_name_with_or_without_the_end():
    for name in ("local", "local-hvd", "local-hvd/"):
        assert environment.load(name).name == "local-hvd"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("specs: [zlib]", "'spack' is missing"),
        ("spack: {specs: zlib}", "'spack:specs'"),
        ("spack: {specs: [zlib], include: }", "'spack:include'"),
        ("spack: {specs: [zlib], include: [1]}", "'spack:include'"),
        ("spack: {specs: [zlib], specs: [zlib]}", "line 1: the key 'specs' is there twice"),
        ("spack: [", "line"),
        ("spack:\n\t- x", "line 2"),
    ],
)
def test_a_bad_environment_names_file_and_key(tmp_path, monkeypatch, text, key):
    monkeypatch.setattr(paths, "ENVIRONMENTS", tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "spack.yaml").write_text(text)
    with pytest.raises(HvdError, match=f"(?s)spack.yaml.*{key}"):
        environment.load("bad")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "versions.yaml"),
        ("[]", "versions.yaml"),
        ("pairs: []", "git: missing"),
        ("git: {}\npairs: [{name: x}]", r"pairs\[0\].spack: missing"),
    ],
)
def test_bad_pins_name_file_and_key(tmp_path, text, key):
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    with pytest.raises(HvdError, match=f"versions.yaml.*{key}|{key}"):
        versions.load(file)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("kill -BUS $$", "dies of SIGBUS"),
        ("echo oops >&2; exit 1", "does not run: oops"),
        ("exit 1", "does not run"),
        ("sleep 5", "does not end"),
    ],
)
def test_a_python_that_is_broken_is_named(monkeypatch, tmp_path, program, said):
    monkeypatch.setattr(externals, "_TIMEOUT", 1)
    with pytest.raises(HvdError, match=f"bin/python {said}"):
        externals.ask(str(script(tmp_path / "bin" / "python", program)))


def test_clean_removes_what_is_named(hvd, state, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("logs", "matrix"):
        (state / name).mkdir(parents=True)
        (state / name / "x").write_bytes(b"x" * 4096)
    assert "logs" in hvd("clean").out and (state / "logs").exists()
    hvd("clean", "logs")
    assert not (state / "logs").exists() and (state / "matrix").exists()
    hvd("clean", "--all")
    assert not (state / "matrix").exists()


def test_quiet_says_what_was_asked_for(hvd):
    assert hvd("--quiet", "spec", "py-horovod ^py-torch@1.2").out.count("\n") == 1
    assert hvd("spec", "py-horovod ^py-torch@1.2").out.count("\n") == 2


def test_a_shell_completes_commands():
    words = {"COMP_WORDS": "./hvd conc", "COMP_CWORD": "1", cli._COMPLETION: "complete_bash"}
    assert process(**words).stdout.split() == ["concretize"]


def test_the_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert paths.cache() == tmp_path / "hvd"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache() == tmp_path / ".cache" / "hvd"


@pytest.mark.parametrize(
    ("named", "is_there"),
    [("", ".hvd"), ("/elsewhere/state", "/elsewhere/state"), ("here", "{cwd}/here")],
)
def test_the_state_is_in_the_checkout_or_where_hvd_state_says(
    tmp_path, monkeypatch, named, is_there
):
    monkeypatch.setenv("HVD_STATE", named)
    monkeypatch.chdir(tmp_path)
    assert paths.shorten(paths.state()) == is_there.format(cwd=tmp_path)


# The script ./hvd, which makes .venv


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose program prints the prefix of its Python, and that needs nothing."""
    program = tmp_path / "ci" / "src" / "hvd" / "__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text("import sys; print(sys.prefix)")
    shutil.copytree(pathlib.Path(commands.__file__).parent, program.parent / "cli")
    for name in ("requirements.txt", "requirements-plots.txt"):
        (tmp_path / "ci" / name).write_text("")
    shutil.copy(paths.ROOT / "hvd", tmp_path / "hvd")
    return tmp_path


def start(checkout, *words, before="pass", **changes):
    """Run ./hvd after the lines ``before``."""
    program = str(checkout / "hvd")
    lines = (
        f"import runpy, sys; {before}; sys.argv = {[program, *words]!r}; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    environment = {**os.environ, **changes}
    return subprocess.run(
        [sys.executable, "-c", lines], env=environment, capture_output=True, text=True
    )


def test_the_script_says_what_it_lacks(checkout):
    """Without git on PATH, ./hvd ends before it makes anything."""
    done = start(checkout, "run", PATH=str(checkout))
    assert done.returncode == cli.USAGE
    assert "git is not on PATH" in done.stderr and "hint:" in done.stderr
    assert not (checkout / ".venv").exists()


def test_the_first_help_installs_nothing(checkout):
    done = start(checkout, "--help", PATH=str(checkout))
    assert done.stdout == commands.overview() and not (checkout / ".venv").exists()


@pytest.mark.parametrize("newer", ["python3.14", "python3.9", "python3.8", ""])
def test_an_old_python_starts_a_newer_one(checkout, newer):
    """As where a module brings the old Python of a framework; pyenv's may not start."""
    script(checkout / "python3.13", "exit 127")
    if newer:
        script(checkout / newer, 'echo newer "$@"')
    before = "sys.version_info = (3, 7, 0)"
    done = start(checkout, "list", before=before, PATH=str(checkout))
    if newer in ("", "python3.8"):
        assert done.returncode == cli.USAGE
        assert "python3 is version 3.7, and ./hvd needs 3.9 or later" in done.stderr
    else:
        assert done.stdout == f"newer {checkout / 'hvd'} list\n", done.stderr


def test_without_ensurepip_the_interpreters_own_pip_installs(checkout):
    """As with Debian's Python without python3-venv; a checkout that is whole may be read-only."""
    done = start(checkout, "list", before="sys.modules['ensurepip'] = None")
    assert done.stdout.strip() == str(checkout / ".venv"), done.stderr
    assert not list((checkout / ".venv" / "bin").glob("pip*"))
    shutil.rmtree(checkout / ".hvd")
    assert start(checkout, "list").stdout == done.stdout
    assert not (checkout / ".hvd").exists()


def test_what_pip_leaves_out_is_no_part_of_its_error(checkout):
    """Of the last lines that pip prints, those about another Python say nothing."""
    lines = ["absent; python_version < '3'", f"absent==1 --hash=sha256:{'0' * 64}"]
    (checkout / "ci" / "requirements.txt").write_text("\n".join(lines))
    done = start(checkout, "list", PIP_NO_INDEX="1")
    assert done.returncode == cli.USAGE and "is a Python index reachable?" in done.stderr
    log = (checkout / ".hvd" / "logs" / "venv.log").read_text()
    assert "Ignoring absent" in log and "Ignoring" not in done.stderr


def test_a_checkout_with_a_colon_in_its_path_is_refused(checkout):
    moved = checkout / "a:b"
    moved.mkdir()
    shutil.copy(checkout / "hvd", moved)
    done = start(moved, "list")
    assert done.returncode == cli.USAGE and "':'" in done.stderr
