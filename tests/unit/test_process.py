"""process: logs, limits, and nothing left behind."""

import os
import pickle
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hvd.core import paths, process
from hvd.core.errors import CommandFailed, HvdError

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
    command = subprocess.Popen([*python(COMMAND), str(log)], env=env, stderr=subprocess.PIPE)
    while not (log.exists() and log.read_text().count("\n") == 2):
        assert command.poll() is None
        time.sleep(0.05)
    child = psutil.Process(int(log.read_text().splitlines()[1]))
    command.send_signal(number)
    _, said = command.communicate(timeout=30)
    assert command.returncode == 128 + number and b"interrupted" in said
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
