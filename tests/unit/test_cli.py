"""The command line: help, bad input, and the launcher script."""

import os
import shutil
import subprocess
import sys

import pytest
import typer

from hvd.cli import main as cli
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import EXIT_STATUS
from hvd.model import environment, versions
from hvd.model.versions import pinned
from hvd.rehearse import cluster


def hvd(*arguments, **changes):
    return subprocess.run(
        [sys.executable, "-m", "hvd", *arguments],
        env={**os.environ, "PYTHONPATH": str(paths.SOURCE), **changes},
        capture_output=True,
        text=True,
    )


def test_help_names_every_command_and_exit_status():
    done = hvd("--help", COLUMNS="120")
    assert done.returncode == 0
    assert "Usage: ./hvd" in done.stdout
    for command in typer.main.get_command(cli.app).commands:
        assert f" {command} " in done.stdout
    for stage, status in EXIT_STATUS.items():
        assert f"{status} {stage} failed" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such-hvd"], "no environment is called 'no-such-hvd'"),
        (["run", "--engine", "conda"], "conda"),
        (["run", "--spec", "zlib"], "--spec: 'zlib' is not a spec of py-horovod"),
        (["externals", "--python", "/no/such/python"], "/no/such/python"),
        (["test", "--require", "moon"], "no tier is called 'moon'"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_error_and_status_2(arguments, message):
    done = hvd(*arguments)
    assert done.returncode == cli.USAGE
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_an_unknown_pair_is_a_failed_setup(tmp_path):
    done = hvd("setup", "--engine=spack", "--pair=spack-0.1", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == EXIT_STATUS["setup"]
    assert "no pair of Spack and packages is called 'spack-0.1'" in done.stderr
    assert pinned().pairs[0].name in done.stderr


def test_every_stage_fails_with_a_status_of_its_own():
    assert len(set(EXIT_STATUS.values()) | {0, 1, cli.USAGE}) == len(EXIT_STATUS) + 3


def test_environments_are_listed():
    done = hvd("list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == environment.names()
    assert "local-hvd" in environment.names()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("specs: [zlib]", "'spack' is missing"),
        ("spack: {specs: zlib}", "'spack:specs'"),
        ("spack: [", "line"),
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
    [("pairs: []", "key 'git'"), ("git: {}\npairs: [{name: x}]", r"key 'pairs\[0\].spack'")],
)
def test_bad_pins_name_file_and_key(tmp_path, text, key):
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    with pytest.raises(HvdError, match=f"versions.yaml.*{key}"):
        versions.load(file)


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


def test_the_launcher_says_what_it_lacks(tmp_path):
    """Without git on PATH, ./hvd ends before it makes anything."""
    script = tmp_path / "hvd"
    shutil.copy(paths.ROOT / "hvd", script)
    done = subprocess.run(
        [sys.executable, script, "run"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == cli.USAGE
    assert "git is not on PATH" in done.stderr and "hint:" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["hvd"]


@pytest.mark.parametrize("newer", ["python3.14", "python3.9", "python3.8", ""])
def test_an_old_python_starts_a_newer_one(tmp_path, newer):
    """As where a module brings the old Python of a framework; pyenv's may not start."""
    script = tmp_path / "hvd"
    shutil.copy(paths.ROOT / "hvd", script)
    cluster.script(tmp_path / "python3.13", "exit 127")
    if newer:
        cluster.script(tmp_path / newer, 'echo newer "$@"')
    lines = (
        "import runpy, sys; sys.version_info = (3, 7, 0); "
        f"sys.argv = [{str(script)!r}, 'list']; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    if newer in ("", "python3.8"):
        assert done.returncode == cli.USAGE
        assert "python3 is version 3.7, and ./hvd needs 3.9 or later" in done.stderr
    else:
        assert done.stdout == f"newer {script} list\n", done.stderr


def test_without_ensurepip_the_interpreters_own_pip_installs(tmp_path):
    """As with Debian's Python without python3-venv."""
    script = tmp_path / "hvd"
    shutil.copy(paths.ROOT / "hvd", script)
    program = tmp_path / "ci" / "src" / "hvd" / "__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text("import sys; print(sys.prefix)")
    for name in ("requirements.txt", "requirements-plots.txt"):
        (tmp_path / "ci" / name).write_text("")
    lines = (
        "import runpy, sys; sys.modules['ensurepip'] = None; "
        f"sys.argv = [{str(script)!r}, 'list']; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / ".venv"), done.stderr
    assert not list((tmp_path / ".venv" / "bin").glob("pip*"))
