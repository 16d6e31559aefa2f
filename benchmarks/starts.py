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
#: Numbers of hosts with a rank each, those of the elastic job, and the ranks on each of these.
SPREAD, HOSTS, RANKS_OF_HOST = (1, 8, 32), 6, 8
#: Stands for ssh to hosts that are addresses of this machine, and takes as long to log in.
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
shift
while [ "$1" = -o ]; do shift 2; done
sleep 0.2
exec sh -c "$*"
"""
#: What horovodrun prints when a part of its start is done.
DONE = {
    "SSH was successful into all the remote hosts.": "ssh to all hosts",
    "Host-to-host interface checking successful.": "interfaces of all hosts",
}
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


def addresses(hosts):
    """Addresses of this machine that horovodrun takes for other hosts."""
    return [f"127.0.2.{number}" for number in range(1, hosts + 1)]


def with_ssh(target, scratch):
    """The environment of a job whose ssh is `SSH`."""
    ssh = scratch / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    return {**target.environment, "PATH": f"{ssh.parent}:{target.environment['PATH']}"}


def over(target, hosts, log):
    """Seconds until each part of a start on hosts of one rank each, and CPU seconds of it all."""
    words = ["-m", "horovod.runner.launch", "--gloo", "--verbose", "--disable-cache"]
    words += ["-np", hosts, "-H", ",".join(f"{each}:1" for each in addresses(hosts))]
    with tempfile.TemporaryDirectory() as scratch, open(log, "a") as output:
        results = pathlib.Path(scratch, "results")
        results.mkdir()
        command = [target.python, "-u", *words]
        command += [target.python, HERE / "start.py", "horovodrun", results]
        before, begin, times = resource.getrusage(resource.RUSAGE_CHILDREN), time.time(), {}
        with subprocess.Popen(
            list(map(str, command)),
            env=with_ssh(target, pathlib.Path(scratch)),
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as job:
            for line in job.stdout:
                output.write(line)
                if line.strip() in DONE:
                    times[DONE[line.strip()]] = time.time() - begin
        if job.returncode:
            raise RuntimeError(f"the job on {hosts} hosts ends with {job.returncode}; see {log}")
        ranks = [json.loads(each.read_text()) for each in results.iterdir()]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    times["last rank begun"] = max(each["begin"] for each in ranks) - begin
    times["first allreduce"] = max(each["done"] for each in ranks) - begin
    times["CPU"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return times


def lost(target, log):
    """Seconds until an elastic job trains, and until it does again after one rank is killed."""
    ranks, hosts = HOSTS * RANKS_OF_HOST, addresses(HOSTS)
    with tempfile.TemporaryDirectory() as scratch, open(log, "a") as output:
        scratch = pathlib.Path(scratch)
        discovery = scratch / "discovery"
        lines = [f"echo {host}:{RANKS_OF_HOST}" for host in hosts]
        discovery.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        discovery.chmod(0o755)
        command = [target.python, "-m", "horovod.runner.launch", "--gloo", "-np", ranks]
        command += ["--min-np", RANKS_OF_HOST, "--network-interfaces", "lo"]
        command += ["--host-discovery-script", discovery, target.python]
        command += [HERE / "elastic_start.py", scratch]
        begin = time.time()
        job = subprocess.Popen(
            list(map(str, command)), env=with_ssh(target, scratch), stdout=output, stderr=output
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
            os.kill(int(first[f"1-{hosts[1]}-0"][0]), signal.SIGKILL)
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
        for hosts in SPREAD:
            for what, seconds in over(target, hosts, log).items():
                timed(what, hosts, "horovodrun, a host each", seconds)
    first, again = lost(target, log)
    timed("first allreduce", HOSTS * RANKS_OF_HOST, "elastic", first)
    timed("after a loss", HOSTS * RANKS_OF_HOST, "elastic", again)
    names = ("what", "ranks", "job")
    rows = [{**dict(zip(names, key)), **spread(seconds)} for key, seconds in times.items()]
    return rows, {"Horovod": found.version, **found.frameworks}
