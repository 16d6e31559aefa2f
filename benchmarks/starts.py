"""The start of many ranks: what their server takes, and whole jobs beside torchrun's."""

import asyncio
import hashlib
import hmac
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from benchmarks.page import HERE, spread
from hvd.core import process
from hvd.model import built
from hvd.model.environment import DEFAULT
from hvd.smoke.launch import Target

#: Ranks that a load generator stands for, and those of real jobs on this machine.
SERVED, STARTED, ROUNDS = (1000, 4000), (8, 48), 3
#: Names of this machine that act as hosts of the elastic job, and the ranks on each.
HOSTS, RANKS_OF_HOST = ("localhost", "127.0.0.1", socket.gethostname()), 16
KEY = bytes(32)
#: The server of horovodrun; prints its port.
SERVER = f"""
import sys
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousServer
ranks = int(sys.argv[1])
server = RendezvousServer()
server.secret_key = bytes.fromhex("{KEY.hex()}")
port = server.start(address="127.0.0.1")
server.init(get_host_assignments([HostInfo("host", ranks)], ranks))
print(port, flush=True)
sys.stdin.read()
"""


async def ask(port, rank, numbers):
    """Stand for a rank: give a part for each other one, and check what they have for it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    place = f"/global/{rank}?size={len(numbers)}&slot=host:{rank}&timeout=600"
    # as long as the address of a socket
    parts = b"".join((numbers[rank], numbers[rank].join(numbers)))
    digest = hmac.new(KEY, f"POST {place}\n".encode() + parts, hashlib.sha256).hexdigest()
    head = f"POST {place} HTTP/1.1\r\nX-Horovod-Digest: {digest}\r\n"
    writer.write(f"{head}Content-Length: {len(parts)}\r\n\r\n".encode() + parts)
    answer = (await reader.read()).partition(b"\r\n\r\n")[2]
    if answer != numbers[rank].join(numbers) + numbers[rank]:
        raise RuntimeError(f"rank {rank} of {len(numbers)} got a wrong answer: {answer[:200]}")
    writer.close()


async def ask_all(port, ranks):
    numbers = [rank.to_bytes(12, "big") for rank in range(ranks)]
    begin = time.monotonic()
    await asyncio.gather(*(ask(port, rank, numbers) for rank in range(ranks)))
    return time.monotonic() - begin


def served(target, ranks):
    """The seconds in which the server has answered that many ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [target.python, "-c", SERVER, str(ranks)]
    with subprocess.Popen(command, env=target.environment, **pipes) as server:
        return asyncio.run(ask_all(int(server.stdout.readline()), ranks))


def launched(target, launcher, ranks, log):
    """Seconds of a job: in initialization after its last rank began it, and until all are done."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    if launcher == "horovodrun":
        command = ["-m", "horovod.runner.launch", "--gloo", "-np", ranks, target.python]
    # as horovodrun does for ranks on one machine
    variables = {**target.environment, "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as scratch:
        command = [target.python, *command, HERE / "start.py", launcher, scratch]
        begin = time.time()
        process.run(command, log=log, env=variables, timeout=600)
        times = [json.loads(path.read_text()) for path in pathlib.Path(scratch).iterdir()]
    last = {key: max(each[key] for each in times) for key in times[0]}
    return last["ready"] - last["begin"], last["done"] - begin


def lost(target, log):
    """Seconds until an elastic job trains, and until it does again after one rank is killed."""
    ranks = len(HOSTS) * RANKS_OF_HOST
    with tempfile.TemporaryDirectory() as scratch, open(log, "a") as output:
        scratch = pathlib.Path(scratch)
        discovery = scratch / "discovery"
        lines = [f"echo {host}:{RANKS_OF_HOST}" for host in HOSTS]
        discovery.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        discovery.chmod(0o755)
        command = [target.python, "-m", "horovod.runner.launch", "--gloo", "-np", ranks]
        command += ["--min-np", RANKS_OF_HOST, "--network-interfaces", "lo"]
        command += ["--host-discovery-script", discovery, target.python]
        command += [HERE / "elastic_start.py", scratch]
        begin = time.time()
        job = subprocess.Popen(
            list(map(str, command)), env=target.environment, stdout=output, stderr=output
        )

        def begun(number, ranks):
            """When the last of that many ranks began to train for that time, and their ids."""
            deadline = time.monotonic() + 600
            while len(found := list(scratch.glob(f"{number}-*"))) < ranks:
                if job.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the elastic job does not train; see {log}")
                time.sleep(0.1)
            return {path.name: path.read_text().split() for path in found}

        try:
            first = begun(1, ranks)
            killed = time.time()
            os.kill(int(first[f"1-{HOSTS[1]}-0"][0]), signal.SIGKILL)
            again = begun(2, ranks - RANKS_OF_HOST)
        finally:
            (scratch / "enough").touch()
            job.wait(timeout=120)
    return tuple(
        max(float(end[-1]) for end in each.values()) - since
        for each, since in ((first, begin), (again, killed))
    )


def starts(repeat):
    """Return the rows and the versions of the default environment, which is built."""
    found = built.find(DEFAULT)
    variables = found.run_environment()
    target = Target(pathlib.Path(shutil.which("python", path=variables["PATH"])), variables)
    log, times = found.directory / "starts.log", {}

    def timed(what, ranks, job, seconds):
        print(f"{ranks} ranks, {what}, {job}: {seconds:.2f} s", flush=True)
        times.setdefault((what, ranks, job), []).append(seconds)

    for _ in range(ROUNDS):
        for ranks in SERVED:
            timed("server", ranks, "horovodrun", served(target, ranks))
        for ranks, launcher in itertools.product(STARTED, ("horovodrun", "torchrun")):
            init, whole = launched(target, launcher, ranks, log)
            timed("initialization", ranks, launcher, init)
            timed("first allreduce", ranks, launcher, whole)
    first, again = lost(target, log)
    timed("first allreduce", len(HOSTS) * RANKS_OF_HOST, "elastic", first)
    timed("after a loss", len(HOSTS) * RANKS_OF_HOST, "elastic", again)
    names = ("what", "ranks", "job")
    rows = [{**dict(zip(names, key)), **spread(seconds)} for key, seconds in times.items()]
    return rows, {"Horovod": found.version, **found.frameworks}
