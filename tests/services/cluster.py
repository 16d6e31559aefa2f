"""A Slurm cluster of two nodes on this machine, from Debian's packages, for any user.

Nothing is installed.  The packages are unpacked in the cache; sockets, key, state and logs are in
a directory of the cluster's own.  Each node is a ``slurmd -N`` with a port of its own on loopback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import os
import pathlib
import re
import secrets
import shlex
import socket
import subprocess
import time
from typing import Dict, Iterator, List, Mapping

import psutil

from hvd.core import process
from hvd.core.errors import HvdError
from tests import debian, needs
from tests.checkout import script

NODES = ("n1", "n2")
#: Ranks that each node takes, however many cores this machine has.
CPUS = 2
#: Seconds for the daemons to start, and for a job to go.
PATIENCE = 30.0
_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libpmix2")
_DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")
_COMMANDS = ("srun", "sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct", "salloc")
_UNDER_WAY = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
#: Without cgroups and without accounting, both of which need more than a user's rights.
_CONFIGURATION = """\
ClusterName=two
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={directory}/munge.socket
PluginDir={plugins}
MailProg=/bin/true
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
TmpFS={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0
ReturnToService=2
KillWait=2
NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PartitionName=compute Nodes=n1,n2 Default=YES MaxTime=10 State=UP
"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster that runs, with all its files in ``directory``."""

    directory: pathlib.Path

    @property
    def variables(self) -> Dict[str, str]:
        """The variables of a user's shell on a login node, and none of a job that we may be in."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        path = f"{self.directory / 'bin'}:{own.get('PATH', os.defpath)}"
        return {**own, "PATH": path}

    def run(self, *command: object, timeout: float = PATIENCE, **more: str) -> str:
        """The output of a command on the login node, which takes at most ``timeout`` seconds."""
        done = subprocess.run(
            list(map(str, command)),
            env={**self.variables, **more},
            cwd=self.directory / "home",
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise HvdError(f"{command[0]} exits with status {done.returncode}: {done.stdout}")
        return done.stdout

    def reconfigure(self, changes: Mapping[str, str]) -> None:
        """Replace words of the configuration, for daemons that start behind this or are told."""
        file = self.directory / "slurm.conf"
        text = file.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)

    def submit(self, script: pathlib.Path, *arguments: object) -> str:
        """Submit a batch script with its arguments, and return the job's number."""
        return self.run("sbatch", "--parsable", script, *arguments).strip().splitlines()[-1]

    def ended(self, number: str, within: float) -> Dict[str, str]:
        """The fields that Slurm has of a job, which has to end within that many seconds."""
        deadline = time.monotonic() + within
        while True:
            text = self.run("scontrol", "show", "job", "--oneliner", number)
            found = dict(re.findall(r"(\w+)=(\S*)", text))
            if found["JobState"] not in _UNDER_WAY:
                return found
            if time.monotonic() > deadline:
                self.run("scancel", number)
                raise HvdError(f"job {number} has not ended within {within:.0f} s: {text}")
            time.sleep(0.1)

    def steps(self) -> List[psutil.Process]:
        """The processes on the nodes: Slurm's process of each step, and the ranks below it."""
        found = []
        for file in (self.directory / "steps").iterdir():
            with contextlib.suppress(psutil.NoSuchProcess):
                step = psutil.Process(int(file.name))
                if any("slurmstepd" in word for word in step.cmdline()):
                    found += [step, *step.children(recursive=True)]
        return found


@contextlib.contextmanager
def started(directory: pathlib.Path, changes: Mapping[str, str] = {}) -> Iterator[Cluster]:
    """Like :func:`running`; skips where the cluster cannot be started."""
    with contextlib.ExitStack() as stack:
        with needs.provided():
            cluster = stack.enter_context(running(directory, changes))
        yield cluster


def unpack() -> pathlib.Path:
    """Return the directory of the cache with the packages; skips where apt cannot fetch them."""
    return debian.unpacked(*_PACKAGES, dependencies=True)


@contextlib.contextmanager
def running(directory: pathlib.Path, changes: Mapping[str, str] = {}) -> Iterator[Cluster]:
    """A cluster in the empty ``directory``, whose path has to be short, as sockets are in it.

    Args:
        changes: words of the configuration to their replacements.
    """
    root = unpack()
    cluster = Cluster(directory)
    _prepare(root, directory)
    cluster.reconfigure(changes)
    before = psutil.Process().children(recursive=True)
    daemons: List[subprocess.Popen] = []
    try:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        munge = [f"--{option}={directory}/munge.{end}" for option, end in files.items()]
        # a directory that is not for everybody is what we want
        munge += ["--force", f"--log-file={directory}/munge.log"]
        daemons.append(_start(directory, "munged", "--foreground", *munge))
        _await(directory, daemons, lambda: (directory / "munge.socket").exists())
        daemons.append(_start(directory, "slurmctld", "-D"))
        for node in NODES:
            stepd = directory / "bin" / "slurmstepd"
            daemons.append(_start(directory, "slurmd", "-D", "-d", stepd, "-N", node))
        _await(directory, daemons, lambda: _idle(cluster))
        yield cluster
    finally:
        for step in cluster.steps():
            with contextlib.suppress(psutil.NoSuchProcess):
                step.kill()
        process.end_descendants(spare=before)
        for each in daemons:
            each.wait()


def _prepare(root: pathlib.Path, directory: pathlib.Path) -> None:
    """Write programs that find their libraries, the key, and the configuration."""
    for name in ("bin", "home", "state", "steps", *NODES):
        (directory / name).mkdir(parents=True)
    (plugins,) = root.glob("usr/lib/*/slurm-wlm")
    _move_pmix(plugins)
    libraries = ":".join(sorted({str(lib.parent) for lib in root.glob("usr/lib/**/lib*.so*")}))
    for name in (*_COMMANDS, *_DAEMONS):
        # several Slurms can be installed, each with a suffix; no alternatives are unpacked
        (program, *_) = [*root.glob(f"usr/*bin/{name}"), *root.glob(f"usr/*bin/{name}-wlm")]
        _wrap(directory, name, [debian.loader(), "--library-path", libraries, program])
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    text = _CONFIGURATION.format(
        directory=directory, plugins=plugins, user=getpass.getuser(), ports=_ports(3), cpus=CPUS
    )
    (directory / "slurm.conf").write_text(text)


def _move_pmix(plugins: pathlib.Path) -> None:
    """Let Slurm's PMIx plugin find the library beside it.

    Its path is compiled in, with a name that is in the package for developers alone.
    """
    library = plugins.parent / "pmix2" / "lib" / "libpmix.so"
    if not library.is_symlink():
        library.symlink_to("libpmix.so.2")
    for plugin in plugins.glob("mpi_pmix_v*.so"):
        content = plugin.read_bytes()
        place = re.compile(rb"/usr/lib/[\w-]+/pmix2/lib\0")
        moved = place.sub(lambda it: b"$ORIGIN/../pmix2/lib".ljust(len(it[0]), b"\0"), content)
        if moved != content:
            partial = plugin.with_name(f".{plugin.name}.{os.getpid()}")
            partial.write_bytes(moved)
            os.replace(partial, plugin)


def _wrap(directory: pathlib.Path, name: str, words: List[object]) -> None:
    """Write a script called ``name``; it sets no variable of the loader's, for jobs inherit it."""
    lines = [f"export SLURM_CONF={directory}/slurm.conf"]
    if name == "slurmstepd":
        # slurmd gives it to init, with another name and without an environment
        lines.append(f": > {directory}/steps/$$")
    lines.append(f'exec {shlex.join(map(str, words))} "$@"')
    # dash would drop functions from the environment, and with them ``module``
    script(directory / "bin" / name, *lines, interpreter="/bin/bash")


def _ports(count: int) -> List[int]:
    """Ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start(directory: pathlib.Path, program: str, *arguments: object) -> subprocess.Popen:
    node = arguments[-1] if program == "slurmd" else ""
    log = directory / f"{program}{node}.log"
    with open(log, "ab") as sink:
        return subprocess.Popen(
            [directory / "bin" / program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )


def _await(directory: pathlib.Path, daemons: List[subprocess.Popen], ready) -> None:
    """Return when ``ready``; no daemon may have ended."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        dead = [each for each in daemons if each.poll() is not None]
        if dead or time.monotonic() > deadline:
            name = pathlib.Path(str((dead or daemons)[-1].args[0])).name
            logs = [each.read_text(errors="replace") for each in directory.glob(f"{name}*.log")]
            raise HvdError(f"{name} does not start: {' '.join(logs).strip()[-500:]}")
        time.sleep(0.1)


def _idle(cluster: Cluster) -> bool:
    command = ["sinfo", "--noheader", "--Node", "--format=%t"]
    # the controller may not answer yet
    done = subprocess.run(command, env=cluster.variables, capture_output=True, text=True)
    return done.stdout.split() == ["idle"] * len(NODES)
