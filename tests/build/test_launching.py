"""What our patches change in horovodrun over Gloo: which ranks it starts, and that it ends.

launcher-hosts.patch, launcher-commands.patch, launcher-output.patch, launcher-cache.patch,
launch-errors.patch and elastic-ends.patch.

The programs end by SIGALRM where they would wait for ever.
"""

import os

import pytest

from tests.checkout import script

LIMIT = "import signal\nsignal.alarm(40)\n"

RANKS = """
import sys, time, types
from horovod.runner.gloo_run import launch_gloo
settings = types.SimpleNamespace(
    hosts=sys.argv[1], num_proc=int(sys.argv[2]), output_filename=None, verbose=0)
slots = []
def start(command, slot, events):
    slots.append((slot.rank, slot.hostname, slot.local_rank, slot.size))
    return 0, time.time()
launch_gloo(["true"], start, settings, ["lo"], {}, "127.0.0.1")
print(sorted(slots))
"""


@pytest.mark.parametrize(
    ("hosts", "ranks"),
    [
        ("h1:2,h2:2", [(0, "h1", 0, 2), (1, "h1", 1, 2)]),
        ("h1:1,h2:1,h1:1", [(0, "h1", 0, 2), (1, "h1", 1, 2)]),
    ],
)
def test_each_rank_that_is_asked_for_has_a_place_of_its_own(unbuilt, hosts, ranks):
    assert unbuilt("0.28.1").run(LIMIT + RANKS, hosts, 2) == f"{ranks}\n"


HOSTFILE = """
import sys
from horovod.runner.common.util import hosts
try:
    print(hosts.parse_host_files(sys.argv[1]))
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# two\nh1 slots=2\n\nh2  # one\n", "h1:2,h2:1"),
        ("h1 slots=2\nh2 slots=2 max_slots=4\n", 'FILE, line 2: "h2 slots=2 max_slots=4" is not'),
        ("h1:2\n", 'FILE, line 1: "h1:2" is not of the form "worker-0 slots=2".'),
    ],
)
def test_a_hostfile_is_read_or_its_line_named(unbuilt, tmp_path, text, said):
    path = tmp_path / "hostfile"
    path.write_text(text)
    assert said.replace("FILE", str(path)) in unbuilt("0.28.1").run(HOSTFILE, path)


HOROVODRUN = """
import sys
from horovod.runner.launch import run_commandline
sys.argv = ["horovodrun", "--gloo", "-np", "1", "--output-filename", sys.argv[1], "sh", "-c",
            'echo "$HOROVOD_RANK of $HOROVOD_SIZE, elastic: $HOROVOD_ELASTIC"']
run_commandline()
"""


def test_a_launcher_that_a_rank_runs_starts_ranks_of_its_own(unbuilt, tmp_path):
    outer = {"HOROVOD_RANK": "7", "HOROVOD_SIZE": "8", "HOROVOD_ELASTIC": "1"}
    unbuilt("0.28.1").run(LIMIT + HOROVODRUN, tmp_path / "out", **outer)
    output = (tmp_path / "out" / "rank.0" / "stdout").read_text()
    assert output == "[0]<stdout>:0 of 1, elastic: 0\n"


FAR = """
import os, sys, types
from horovod.runner import gloo_run
os.chdir(sys.argv[1])
gloo_run.network.get_local_host_addresses = set
settings = types.SimpleNamespace(
    hosts="localhost:1", num_proc=1, output_filename=None, verbose=0, elastic=False, ssh_port=None,
    ssh_identity_file="my key", prefix_output_with_timestamp=False)
gloo_run.gloo_run(settings, ["lo"], {}, "127.0.0.1", ["pwd"])
"""


def test_directories_and_keys_of_any_name(unbuilt, tmp_path):
    horovod = unbuilt("0.28.1")
    take = 'until [ "$1" = "my key" ]; do shift; done; shift; cd /'
    script(horovod.scratch / "bin" / "ssh", take, 'exec sh -c "$*"')
    directory = tmp_path / "a & b"
    directory.mkdir()
    assert horovod.run(LIMIT + FAR, directory) == f"[0]<stdout>:{directory}\n"


OUTPUT = r"""
import io
from horovod.runner.common.util.safe_shell_exec import execute
class Closed(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")
many = "printf '\\377\\n'; yes | head -c 200000; echo end"
text = io.StringIO()
print(execute(many, stdout=text), text.getvalue()[:2] == "\ufffd\n", text.getvalue()[-4:])
print(execute(many, stdout=Closed()))
text = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
execute("printf '\\303\\251\\n'", stdout=text)
print(text.buffer.getvalue())
"""


def test_a_rank_does_not_hang_by_what_it_prints(unbuilt):
    said = unbuilt("0.28.1").run(LIMIT + OUTPUT)
    assert said == "0 True end\n\n0\nb'\\\\xe9\\n'\n"


ENDED = """
import io, os, sys, threading
import psutil
from horovod.runner.common.util.safe_shell_exec import execute
told = threading.Event()
threading.Timer(1, told.set).start()
code = execute(sys.argv[1], stdout=io.StringIO(), stderr=io.StringIO(), events=[told])
left = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == sys.argv[2:]]
print(code != 0, left, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "command",
    [
        "bash -c '(trap \"\" TERM; {}; true) & sleep 30; true'",
        "bash -c 'bash -c \"{} & sleep 30; true\"; true'",
        "{} & kill -KILL $$",
    ],
    ids=["deaf", "grandchild", "killed"],
)
def test_nothing_is_left_of_a_command_that_fails(unbuilt, command):
    # no other process has these words
    words = ["sleep", f"43{os.getpid()}"]
    program = LIMIT.replace("40", "25") + ENDED
    assert unbuilt("0.28.1").run(program, command.format(" ".join(words)), *words) == "True []\n"


FAILS = """
import os, types
from horovod.runner.driver import driver_service
leave = os._exit
os._exit = lambda code: leave(0)
settings = types.SimpleNamespace(verbose=0, ssh_port=None, ssh_identity_file=None)
driver_service._launch_task_servers(["far"], set(), {}, settings)
signal.pause()
"""


def test_a_host_that_does_not_start_is_named(unbuilt):
    horovod = unbuilt("0.28.1")
    script(horovod.scratch / "bin" / "ssh", "echo no python; exit 127")
    said = horovod.run(LIMIT + FAILS, PYTHONUNBUFFERED="")
    assert "on host far was not successful, exit code 127:\nno python\n" in said


#: Two hosts, of which one's first worker fails.
ELASTIC = """
import logging, os, sys, threading, time
from unittest import mock
from horovod.runner.elastic import discovery, driver
logging.disable()
fail, killed = threading.Event(), threading.Event()
started = []
def create(slot, events):
    started.append(slot.hostname)
    while not any(event.is_set() for event in [killed, *events]):
        if slot.hostname == "b" and fail.is_set() and started.count("b") == 1:
            return 1, time.time()
        time.sleep(0.05)
    return 143, time.time()
def begin(found=discovery.FixedHosts({"a": 1, "b": 1}), create=create, **options):
    job = driver.ElasticDriver(mock.Mock(), found, 2, 2, **options)
    job.wait_for_available_slots(2)
    job.start(2, create)
    fail.set()
    return job
def codes(job):
    return sorted(code for code, _ in job.get_results().worker_results.values())
def ready(job, host):
    threading.Thread(target=job.record_ready, args=(host, 0), daemon=True).start()
BODY
sys.stdout.flush()
os._exit(0)
"""

BODIES = {
    "a slot is used again": (
        """
job = begin(cooldown_range=(1, 3))
ready(job, "a")
while started.count("b") < 2:
    time.sleep(0.1)
print("again")
""",
        "again",
    ),
    "interrupted while it waits for hosts": (
        """
job = begin()
ready(job, "a")
time.sleep(2)
killed.set()
job.interrupt()
print(codes(job))
""",
        "[1, 143]",
    ),
    "a worker cannot be started": (
        """
def create(slot, events):
    raise PermissionError("mkdir")
print(codes(begin(create=create)))
""",
        "[1, 1]",
    ),
    "discovery hangs": (
        """
discovery.DISCOVERY_SCRIPT_SECONDS = 2
try:
    driver.ElasticDriver(mock.Mock(), discovery.HostDiscoveryScript("sleep 44", 1), 1, 1)\\
        .wait_for_available_slots(1)
except RuntimeError as error:
    print(error)
""",
        "Job has been shutdown, see above error messages for details.",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_elastic_job_goes_on_or_ends(unbuilt, name):
    body, said = BODIES[name]
    assert unbuilt("0.28.1").run(LIMIT + ELASTIC.replace("BODY", body)) == f"{said}\n"


CACHE = """
import os, sys
from horovod.runner.util import cache
folder, content = sys.argv[1:]
os.makedirs(folder)
path = os.path.join(folder, "cache.bin")
open(path, "w").write(content)
first = cache.Cache(folder, 60, "hosts")
read = open(path)
first.put("key", "value")
print(cache.Cache(folder, 60, "hosts").get("key"), read.read() == content, os.listdir(folder))
"""


@pytest.mark.parametrize("content", ["", "half a fi"])
def test_launchers_share_a_cache(unbuilt, tmp_path, content):
    said = unbuilt("0.28.1").run(CACHE, tmp_path / "cache", content)
    assert said == "value True ['cache.bin']\n"
