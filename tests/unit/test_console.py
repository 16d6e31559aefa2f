"""A run's stages and steps: what is shown, and what is kept of them."""

from __future__ import annotations

import io

import pytest
import rich.console

from hvd.core import console
from hvd.core.errors import CommandFailed, HvdError
from hvd.core.run import EXIT_STATUS, Run, StageFailed
from hvd.core.steps import Step


@pytest.fixture
def run(workplace):
    return Run("local-hvd", "pip")


def test_a_run_keeps_stages_steps_and_logs(run, capsys):
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


def test_verbose_names_the_logs(workplace, capsys):
    run = Run("local-hvd", "pip", verbose=True)
    with run.stage("build"):
        with run.step("one") as task:
            task.log.write_text("x")
        with run.step("two"):
            pass
    assert capsys.readouterr().out.count("log: ") == 1


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
