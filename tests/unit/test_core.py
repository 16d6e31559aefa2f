"""hvd.core: runs and what is shown of them, commands, and stamps of what is whole."""

from __future__ import annotations

import functools
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import rich.console

from hvd.core import console, paths, process, stamp
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.run import EXIT_STATUS, Run, StageFailed
from hvd.core.steps import Step


@pytest.fixture
def run(workplace):
    return Run("local-hvd", "pip")


def test_a_run_keeps_stages_steps_and_logs(workplace, capsys):
    run = Run("local-hvd", "pip", verbose=True)
    with run.stage("setup"), run.step("Spack & its [packages]") as task:
        task.say("spack-1.2")
        task.log.write_text("cloned")
    with run.stage("build"):
        with run.step("one") as task:
            task.cached()
        with run.step("two") as task:
            task.skipped("not here")
    assert [(stage.name, stage.status) for stage in run.stages] == [
        ("setup", "ok"),
        ("build", "ok"),
    ]
    (first,) = run.stages[0].steps
    assert first.log == (run.logs / "setup" / "01-spack-its-packages.log")
    assert [step.status for step in run.stages[1].steps] == ["cached", "skipped"]
    # nothing was run, so there is no log to read
    assert run.stages[1].steps[0].log is None
    assert run.stages[0].seconds >= first.seconds >= 0
    lines = capsys.readouterr().out.splitlines()
    # --verbose names the logs that were written
    assert [line for line in lines if "log: " in line] == [lines.pop(2)]
    assert lines[0] == "setup" and lines[2] == "build"
    assert lines[1].split() == [*"Spack & its [packages]".split(), "0.0", "s", "ok", "spack-1.2"]
    assert lines[3].split()[-3:] == ["cached", "already", "there"]
    assert lines[4].split()[-3:] == ["skipped", "not", "here"]


def test_a_stage_of_cached_steps_is_cached_and_one_with_a_failed_step_may_go_on(run):
    with run.stage("build"):
        for name in ("one", "two"):
            with run.step(name) as task:
                task.cached()
    with run.stage("smoke"), run.step("mpirun") as task:
        task.failed("rank 1 is gone")
    assert [stage.status for stage in run.stages] == ["cached", "ok"]
    assert (task.status, task.detail) == ("failed", "rank 1 is gone")


@pytest.mark.parametrize("stage", list(EXIT_STATUS))
def test_an_error_ends_its_stage(run, capsys, stage):
    error = CommandFailed("spack install", 1, "last words", run.logs / "log", 2.0)
    with pytest.raises(StageFailed) as caught, run.stage(stage), run.step("spack") as task:
        raise error
    assert caught.value.status == EXIT_STATUS[stage] and caught.value.error is error
    assert run.stages[0].status == task.status == "failed"
    assert "spack install" in task.detail
    printed = capsys.readouterr()
    assert "failed" in printed.out
    assert "last words" in printed.err and str(run.logs / "log") in printed.err


def test_an_error_is_shown_with_log_and_hint(capsys, tmp_path):
    console.error(HvdError("key [a] is missing", "add it", tmp_path / "log"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: key [a] is missing", f"  log: {tmp_path / 'log'}", "  hint: add it"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [("", ""), ("[  5%] a\n[ 42%] Building x\nnothing", " 42 %"), ("[100%] y", "100 %")],
)
def test_the_live_line_shows_how_far_make_is(monkeypatch, tmp_path, written, shown):
    (tmp_path / "log").write_text(written)
    terminal = rich.console.Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(console, "out", terminal)
    step = Step("spack install", log=tmp_path / "log", detail="py-horovod")
    with console.step(step):
        text = console._live(step).plain
    assert "spack install" in text and "py-horovod" in text and shown in text
    assert ("%" in text) == bool(shown)
    # the live line is gone in the end, and the verdict is there
    assert "ok" in terminal.file.getvalue().splitlines()[-1]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (125, "2:05 min")]
)
def test_durations(capsys, seconds, shown):
    console.verdict(Step("a step", seconds=seconds))
    assert capsys.readouterr().out.split("  ")[-2].strip() == shown


#: Starts a grandchild in a session of its own, says its pid, and waits.
ESCAPE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep({wait})
"""


def python(text):
    return [sys.executable, "-c", text]


def test_output_and_commands_are_in_the_log(tmp_path):
    log = tmp_path / "deep" / "log"
    done = process.run(
        python("print('hello'); import sys; print('oops', file=sys.stderr)"), log=log
    )
    assert done.status == 0 and sorted(done.output.splitlines()) == ["hello", "oops"]
    assert process.run(python("print(2)"), log=log).output == "2\n"
    assert log.read_text().startswith("$ ") and "hello\n" in log.read_text()


def test_failure_carries_status_and_last_lines(tmp_path):
    program = "print('\\n'.join(map(str, range(100)))); raise SystemExit(3)"
    with pytest.raises(CommandFailed) as caught:
        process.run(python(program), log=tmp_path / "log")
    assert caught.value.status == 3
    assert caught.value.tail.splitlines()[-1] == "99"
    assert len(caught.value.tail.splitlines()) == process.TAIL_LINES
    # as from the process of a pool
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and vars(again) == vars(caught.value)
    with pytest.raises(CommandFailed) as caught:
        process.run(["/no/such/program"], log=tmp_path / "log")
    assert "No such file" in caught.value.tail


@pytest.mark.parametrize("wait", [600, 0], ids=["time-out", "launcher ended first"])
def test_no_descendant_survives_even_in_its_own_session(tmp_path, wait):
    process.adopt_orphans()
    log = tmp_path / "log"
    begin = time.monotonic()
    try:
        process.run(python(ESCAPE.format(wait=wait)), log=log, timeout=2)
        assert not wait
    except CommandFailed as error:
        assert wait and error.status is None
    pid = int(log.read_text().splitlines()[-1])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert time.monotonic() - begin < 60


def test_a_signal_while_a_command_starts_ends_it(tmp_path, monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            started.append(psutil.Process(self.pid))
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.run(python("import time; time.sleep(600)"), log=tmp_path / "log")
    assert not process.alive(started[0])


def test_other_children_are_spared(tmp_path):
    other = psutil.Popen(python("import time; time.sleep(600)"))
    try:
        process.run(python("pass"), log=tmp_path / "log")
        assert other.is_running() and other.status() != psutil.STATUS_ZOMBIE
    finally:
        other.kill()
        other.wait()


def test_a_password_in_an_address_is_in_no_log_and_no_error(tmp_path):
    address = "https://somebody:SECRET@git.example/spack.git"
    with pytest.raises(CommandFailed) as failed:
        process.run(
            python(f"import sys; sys.exit('fatal: {address} is gone')"), log=tmp_path / "l"
        )
    error = HvdError(f"cannot fetch {address}", address)
    said = [failed.value.message, failed.value.tail, error.message, error.remedy, str(error)]
    said.append((tmp_path / "l").read_text())
    assert all("https://***@git.example/spack.git" in each for each in said)
    assert not any("SECRET" in each or "somebody" in each for each in said)


#: A command of `./hvd` that runs another one.
COMMAND = """
import pathlib, sys
from hvd.cli import main
from hvd.core import process
log = pathlib.Path(sys.argv[1])
main.application = lambda words: lambda **_: process.run(
    ["sh", "-c", "echo $$; sleep 600"], log=log
)
main.main(["build"])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_was_started_as_well(tmp_path, number):
    log = tmp_path / "log"
    env = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    # nohup, which may have started the tests, ignores one of them
    reset = functools.partial(signal.signal, number, signal.SIG_DFL)
    command = subprocess.Popen(
        [*python(COMMAND), str(log)], env=env, stderr=subprocess.PIPE, preexec_fn=reset
    )
    while not (log.exists() and log.read_text().count("\n") == 2):
        assert command.poll() is None
        time.sleep(0.05)
    child = psutil.Process(int(log.read_text().splitlines()[1]))
    command.send_signal(number)
    _, said = command.communicate(timeout=30)
    assert command.returncode == 128 + number and b"interrupted" in said
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_no_stamp_or_another_one_means_do_it_again(tmp_path):
    file = tmp_path / "deep" / "stamp"
    digest = stamp.of("torch==2.13.0")
    assert not stamp.matches(file, digest)
    stamp.put(file, digest)
    assert stamp.matches(file, digest)
    assert not stamp.matches(file, stamp.of("torch==2.12.0"))


def test_what_is_half_removed_has_no_stamp(tmp_path, monkeypatch):
    def killed(directory):
        raise KeyboardInterrupt

    stamp.put(tmp_path / "stamp", stamp.of("torch==2.13.0"))
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        stamp.clear(tmp_path)
    assert not stamp.matches(tmp_path / "stamp", stamp.of("torch==2.13.0"))


def test_contents_and_names_of_files_count_but_not_what_python_and_spack_leave(tmp_path):
    (tmp_path / "a.patch").write_text("1")
    first = stamp.of(tmp_path)
    for name in ("__pycache__", ".spack-env"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    assert stamp.of(tmp_path) == first
    (tmp_path / "a.patch").write_text("2")
    second = stamp.of(tmp_path)
    (tmp_path / "a.patch").rename(tmp_path / "b.patch")
    assert len({first, second, stamp.of(tmp_path)}) == 3
