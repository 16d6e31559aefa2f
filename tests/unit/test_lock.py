"""lock: one at a time, and orphans of a killed one are ended."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError

#: Takes the lock, starts a process of its own and says both pids.
HOLDER = """
import pathlib, subprocess, sys, os, time
from hvd.core import lock
with lock.exclusive(pathlib.Path(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True)
    print(os.getpid(), child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    path = tmp_path / "lock"
    environment = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True, env=environment
    )
    owner, orphan = map(int, process.stdout.readline().split())
    yield path, process, owner, orphan
    for pid in (owner, orphan):
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def test_a_second_one_is_told_who_holds_it(holder):
    path, _, owner, _ = holder
    with pytest.raises(HvdError) as caught, lock.exclusive(path):
        pass
    assert str(owner) in caught.value.message
    assert f"kill {owner}" in caught.value.remedy


def test_orphans_of_a_killed_owner_are_ended(holder):
    path, process, owner, orphan = holder
    os.kill(owner, signal.SIGKILL)
    process.wait()
    assert psutil.Process(orphan).is_running()
    with lock.exclusive(path):
        gone = not psutil.pid_exists(orphan)
        assert gone or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE


def test_it_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with lock.exclusive(tmp_path / "lock"):
            assert os.environ[lock.MARK] == lock.mark(os.getpid(), tmp_path / "lock")
    assert lock.MARK not in os.environ


def test_an_orphan_that_nobody_has_read_the_end_of_is_ended(tmp_path):
    """Its parent may be one that does not, such as a test that adopts orphans."""
    path = tmp_path / "lock"
    path.touch()
    child = subprocess.Popen(["sleep", "100"], env={**os.environ, lock.MARK: lock.mark(1, path)})
    # the kernel shows a new program's environment a moment after it was started
    while lock.MARK not in psutil.Process(child.pid).environ():
        time.sleep(0.01)
    lock.end_orphans(path)
    assert child.wait() == -signal.SIGKILL


def test_a_process_of_ones_own_outlives_the_lock(tmp_path):
    # multiprocessing's tracker is one, which the next block's pool talks to
    path = tmp_path / "lock"
    with lock.exclusive(path):
        own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with lock.exclusive(path):
            assert own.poll() is None
            assert psutil.Process(own.pid).status() != psutil.STATUS_ZOMBIE
    finally:
        own.kill()
        own.wait()


def test_a_process_of_another_root_is_left_alone(holder, tmp_path):
    """There, the same path is another file: so it is for `./hvd debian`."""
    path, _, _, other = holder
    path.rename(tmp_path / "the other root's")
    with lock.exclusive(path):
        assert psutil.Process(other).status() != psutil.STATUS_ZOMBIE
