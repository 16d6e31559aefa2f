"""lock: one at a time, and orphans of a killed one are ended."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from hvd.core import lock, paths
from hvd.core.errors import HvdError

#: Takes the lock, runs a command that starts another one, and says its own pid and theirs.
HOLDER = """
import os, pathlib, sys
from hvd.core import lock, process
path = pathlib.Path(sys.argv[1])
with lock.exclusive(path):
    print(os.getpid(), flush=True)
    process.run(["sh", "-c", "echo $$ > pids; setsid sleep 600 & echo $! >> pids; wait"],
                log=path.with_name("log"), cwd=path.parent)
"""


@pytest.fixture
def holder(tmp_path):
    path = tmp_path / "lock"
    environment = {**os.environ, "PYTHONPATH": str(paths.SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True, env=environment
    )
    owner = int(process.stdout.readline())
    while not (tmp_path / "pids").exists() or (tmp_path / "pids").read_text().count("\n") < 2:
        assert process.poll() is None
    left = [psutil.Process(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
    yield path, process, owner, left
    for each in [process, *left]:
        if each.is_running() if isinstance(each, psutil.Process) else each.poll() is None:
            each.kill()
    process.wait()


def test_a_second_one_is_told_who_holds_it(holder):
    path, _, owner, _ = holder
    with pytest.raises(HvdError, match=str(owner)) as caught, lock.exclusive(path):
        pass
    assert f"kill {owner}" in caught.value.remedy


def test_what_a_killed_owner_left_is_ended(holder):
    path, process, owner, left = holder
    os.kill(owner, signal.SIGKILL)
    process.wait()
    assert all(each.is_running() for each in left)
    with lock.exclusive(path):
        psutil.wait_procs(left, timeout=5)
        assert not any(
            each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in left
        )


def test_a_process_of_ones_own_outlives_the_lock(tmp_path):
    # multiprocessing's tracker is one, which the next block's pool talks to
    with lock.exclusive(tmp_path / "lock"):
        own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with lock.exclusive(tmp_path / "lock"):
            assert own.poll() is None
    finally:
        own.kill()
        own.wait()
