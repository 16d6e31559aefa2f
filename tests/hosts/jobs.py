"""Jobs on several hosts, started on the first of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import subprocess
from typing import Dict, Iterator

import psutil

from hvd.smoke.launch import Target, find_program
from tests.checkout import wait_for
from tests.hosts.network import Network

#: Each rank writes where it is when the sums over all of them are right.
PLACES = """
import json, pathlib, socket, torch, horovod.torch as hvd
hvd.init()
for step in range(20):
    total = hvd.allreduce(torch.full((100_000,), hvd.rank() + step), op=hvd.Sum)
    wanted = hvd.size() * (hvd.size() - 1) // 2 + hvd.size() * step
    assert torch.equal(total, torch.full((100_000,), wanted)), total[:3]
place = [hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
text = json.dumps([socket.gethostname(), *place])
pathlib.Path(f"rank-{hvd.rank()}-of-{hvd.size()}").write_text(text)
hvd.shutdown()
"""
#: Ranks sum for ever; each says when it begins.
ENDLESS = """
import pathlib, torch, horovod.torch as hvd
hvd.init()
pathlib.Path(f"begun-{hvd.rank()}").touch()
while True:
    hvd.allreduce(torch.ones(1000), name="sum")
"""


@dataclasses.dataclass
class Job:
    """A launcher that runs on h1, and its output."""

    launcher: subprocess.Popen
    directory: pathlib.Path
    network: Network

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")

    def wait(self, within: float) -> int:
        """Wait for the end of the launcher, and of all processes on all hosts; its status."""
        try:
            status = self.launcher.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.output}") from None
        wait_for(lambda: not self.network.processes(), 20, self.network.processes)
        return status

    def begun(self, ranks: int) -> None:
        """Wait until that many ranks of `ENDLESS` sum."""

        def all_begun() -> bool:
            assert self.launcher.poll() is None, self.output
            return len(list(self.directory.glob("begun-*"))) == ranks

        wait_for(all_begun, 200, lambda: self.output)


@dataclasses.dataclass
class Cluster:
    """Hosts with a Horovod."""

    network: Network
    target: Target

    def environment(self) -> Dict[str, str]:
        """That of a user who is logged in on a host, and has loaded Horovod."""
        settings = {
            "HOME": str(self.network.home),
            # milliseconds between operations: leaves cores to ranks that are starting
            "HOROVOD_CYCLE_TIME": "10",
            # also until the last rank has started
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "20",
            "HOROVOD_START_TIMEOUT": "120",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        return {**self.target.environment, **settings}

    @contextlib.contextmanager
    def job(self, directory: pathlib.Path, launcher: str, *program: object) -> Iterator[Job]:
        """Start a launcher with its options on h1; nothing is left when the block ends."""
        name, *options = launcher.split()
        command = [find_program(self.target, name), *options, self.target.python, "-u", *program]
        with open(directory / "output", "wb") as output:
            process = subprocess.Popen(
                self.network.hosts["h1"].command(directory, *command),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Job(process, directory, self.network)
        finally:
            wait_for(self._nothing_left, 20, self.network.processes)
            process.wait()

    def _nothing_left(self) -> bool:
        """Kill what runs on the hosts; whether nothing did."""
        left = self.network.processes()
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        return not left

    def run(
        self, directory: pathlib.Path, launcher: str, program: str, within: float = 200
    ) -> Job:
        """Run a program to its end; see `Job.wait`."""
        (directory / "job.py").write_text(program)
        with self.job(directory, launcher, "job.py") as job:
            job.wait(within)
            return job

    def places(self, directory: pathlib.Path, launcher: str) -> Dict[str, list]:
        """Where each rank of `PLACES` was, by what it calls itself."""
        job = self.run(directory, launcher, PLACES)
        assert job.launcher.returncode == 0, job.output
        return {path.name: json.loads(path.read_text()) for path in directory.glob("rank-*")}
