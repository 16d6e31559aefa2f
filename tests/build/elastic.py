"""An elastic job on this machine: workers can be killed and hosts added while it runs."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import time
from typing import Dict, Iterator, List

import psutil

from hvd.core import paths, process
from hvd.core.files import write_atomically
from hvd.smoke.launch import Target, find_program
from tests.checkout import wait_for

#: Two names of this machine.  A host is not used any more once a worker on it has failed.
HOSTS = ("localhost", "127.0.0.1")
DIRECTORY = paths.ROOT / "examples" / "elastic"
SCRIPT = DIRECTORY / "pytorch_mnist_elastic.py"
#: What the script prints: when it begins, with that many workers; at each commit, every ten
#: steps and at the end of an epoch; at its end.
BEGIN = r"rank (?P<rank>\d) of %d at step (?P<step>\d+): weights (?P<weights>[\d.]+)"
COMMIT = r"step (?P<step>\d+): loss (?P<loss>[\d.]+), weights (?P<weights>[\d.]+)"
EPOCH = r"epoch \d+ ended at step (?P<step>\d+): weights (?P<weights>[\d.]+)"
END = r"trained to step (?P<step>\d+): weights (?P<weights>[\d.]+)"
#: What one job may need: some seconds each for Horovod's launcher and for the first and the
#: third worker to import PyTorch, on a machine that does other work as well.
TIMEOUT = 120.0


class Job:
    """A running ``horovodrun`` with examples/elastic.

    Args:
        launcher: its process.
        directory: where it runs, with its output and its list of hosts.
        program: what its workers run.
    """

    def __init__(
        self, launcher: subprocess.Popen, directory: pathlib.Path, program: pathlib.Path
    ) -> None:
        self.launcher = launcher
        self.directory = directory
        self.program = program
        self.deadline = time.monotonic() + TIMEOUT

    @property
    def output(self) -> str:
        """All that was printed, without the rank that horovodrun puts before each line."""
        text = (self.directory / "output").read_text(errors="replace")
        return re.sub(r"^\[\d+\]<std(out|err)>:", "", text, flags=re.MULTILINE)

    def wait_for(self, pattern: str, times: int = 1) -> List[re.Match]:
        """Wait until whole lines like ``pattern`` were printed that many ``times``."""

        def found() -> List[re.Match]:
            matches = self.lines(pattern)
            if len(matches) >= times:
                return matches
            assert self.launcher.poll() is None, f"no '{pattern}' in:\n{self.output}"
            return []

        return wait_for(found, self.deadline - time.monotonic(), lambda: self.output)

    def lines(self, pattern: str) -> List[re.Match]:
        """All whole lines like ``pattern`` so far."""
        return list(re.finditer(f"^{pattern}\n", self.output, re.MULTILINE))

    def wait_for_more(self, pattern: str, times: int) -> None:
        """Wait until that many further lines like ``pattern`` were printed."""
        self.wait_for(pattern, len(self.lines(pattern)) + times)

    def committed(self, match: re.Match) -> bool:
        """Whether step and weights of a printed line are those of a commit."""
        made = {(c["step"], c["weights"]) for c in self.lines(COMMIT) + self.lines(EPOCH)}
        return (match["step"], match["weights"]) in made

    def last_commit_before(self, match: re.Match) -> int:
        """The step of the last commit that was printed before a line."""
        commits = self.lines(COMMIT) + self.lines(EPOCH)
        return max(int(c["step"]) for c in commits if c.start() < match.start())

    def wait(self) -> int:
        """Wait until the job has ended; the exit status of its launcher."""
        return self.launcher.wait(self.deadline - time.monotonic())

    def processes(self) -> List[psutil.Process]:
        """All that the launcher has started."""
        return psutil.Process(self.launcher.pid).children(recursive=True)

    def workers(self) -> Dict[str, psutil.Process]:
        """A training process of each host, by the host's name."""
        found = {}
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                words = each.cmdline()
                if words[1:2] == [str(self.program)]:
                    found[each.environ()["HOROVOD_HOSTNAME"]] = each
        return found

    def hosts_by_rank(self) -> List[str]:
        """The hosts of the first workers, in the order of the ranks that they began with."""
        rank = {host: int(each.environ()["HOROVOD_RANK"]) for host, each in self.workers().items()}
        return sorted(rank, key=rank.__getitem__)

    def set_hosts(self, slots: Dict[str, int]) -> None:
        """Change what the discovery script prints, at once."""
        set_hosts(self.directory, slots)


def set_hosts(directory: pathlib.Path, slots: Dict[str, int]) -> None:
    """Write the list of hosts that the discovery script prints."""
    text = "".join(f"{host}:{count}\n" for host, count in slots.items())
    write_atomically(directory / "hosts", text.encode())


@contextlib.contextmanager
def job(
    target: Target,
    directory: pathlib.Path,
    *arguments: object,
    program: pathlib.Path = SCRIPT,
    slots: int = 1,
) -> Iterator[Job]:
    """Start workers on `HOSTS`; nothing of the job is left when the block ends.

    Args:
        arguments: of the program.
        program: what they run.
        slots: how many workers a host has.
    """
    process.adopt_orphans()
    set_hosts(directory, dict.fromkeys(HOSTS, slots))
    most = slots * len(HOSTS)
    options = f"--gloo -np {most} --min-np {slots} --max-np {most} --network-interfaces lo"
    command = [find_program(target, "horovodrun"), *options.split()]
    command += ["--host-discovery-script", DIRECTORY / "discover_hosts.sh"]
    command += [target.python, program, *arguments]
    settings = {
        # milliseconds between operations: a slow job is quick enough here, and leaves the
        # machine's cores to a worker that is starting
        "HOROVOD_CYCLE_TIME": "20",
        "HOROVOD_ELASTIC_TIMEOUT": "60",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
    }
    before = psutil.Process().children(recursive=True)
    with open(directory / "output", "wb") as output:
        launcher = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            env={**target.environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Job(launcher, directory, program)
    finally:
        process.end_descendants(spare=before)
        launcher.wait()
