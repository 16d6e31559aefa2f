"""Several hosts on this machine: namespaces on a bridge, with an sshd each.

The room is a user, network, mount and PID namespace with the bridge.  A host is a network,
mount, UTS and PID namespace in it, whose first process is its sshd.  A host ends with that
process, all hosts end with the room, and the room with the process of the tests, whatever ends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
from typing import Dict, List, Sequence

import psutil

from tests import debian
from tests.checkout import run, wait_for

#: The user of all hosts.  No root: sshd of root needs users that an unprivileged one cannot map.
USER, UID = "trainer", "1000"
NETWORK, NETWORK_6 = "10.77.0", "fd77:"
#: Makes the bridge, and the files that all hosts share.  Its end is that of its standard input.
ROOM = f"""
set -e
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/passwd" /etc/passwd
mount --bind /dev/null /etc/resolv.conf
mount -t tmpfs tmpfs /run
mkdir /run/netns
touch /run/netns/room
mount --bind /proc/self/ns/net /run/netns/room
ip link set lo up
ip link add bridge type bridge mcast_snooping 0
ip address add {NETWORK}.254/24 dev bridge
ip link set bridge up
echo ready
exec cat
"""
#: Makes a host of its name, interface, number, the room's directory, sshd and its libraries.  As
#: real ones it has other networks as well: one that is the same on each host and connects none,
#: like Docker's, and one whose addresses are the others' to send to, but nothing arrives.
HOST = f"""
set -e
hostname "$1"
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
# it has the same address after it has died
ip link add "$2" address "02:00:00:00:00:0$3" type veth peer name "$1" netns room
ip -n room link set "$1" master bridge up
ip address add {NETWORK}.$3/24 dev "$2"
ip address add {NETWORK_6}:$3/64 dev "$2" nodad
ip link set "$2" up
for other in "docker0 172.17.0.1/16" "admin0 192.168.$3.1/24"; do
    ip link add "${{other% *}}" type bridge
    ip address add "${{other#* }}" dev "${{other% *}}"
    ip link set "${{other% *}}" up
done
ip route add default via {NETWORK}.254
sysctl -qw net.ipv4.ip_unprivileged_port_start=0
echo ready
export LD_LIBRARY_PATH="$6"
exec unshare --user --map-user={UID} --map-group={UID} "$5" -D -f "$4/sshd_config" -E "$4/$1.log"
"""
#: Puts a wire between a host's interface and the bridge: in the host, and in the room, with the
#: interface, number, directory, VDE's package, milliseconds of delay and percent of loss.
SLOW_HOST = f"""
set -e
export LD_LIBRARY_PATH="$4/usr/lib:$4/usr/lib/x86_64-linux-gnu"
ip link delete "$1"
"$4/usr/bin/vde_switch" -sock "$3/host" -tap "$1" -daemon
ip address add {NETWORK}.$2/24 dev "$1"
ip link set "$1" up
ip route add default via {NETWORK}.254
"""
SLOW_ROOM = """
set -e
export LD_LIBRARY_PATH="$4/usr/lib:$4/usr/lib/x86_64-linux-gnu"
"$4/usr/bin/vde_switch" -sock "$3/room" -tap slow -daemon
ip link set slow master bridge up
"$4/usr/bin/wirefilter" -v "$3/room:$3/host" -delay "$5" -loss "$6" --daemon
"""
SSHD = """
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/key.pub
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
"""
#: The user's own settings: those that no launcher can know.
SSH = """
IdentityFile {directory}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


#: What runs on a host without any job.
PARTS = ("sshd", "vde_switch")
_SPACES = (("net", "net"), ("mount", "mnt"), ("pid", "pid"))


@dataclasses.dataclass
class Host:
    """A host that runs."""

    name: str
    address: str
    starter: subprocess.Popen
    #: its first process
    pid: int

    def command(self, directory: pathlib.Path, *words: object) -> List[str]:
        """The command line that runs a command on it, as its user, in a directory."""
        enter = ["nsenter", f"--target={self.pid}", "--user", "--preserve-credentials"]
        enter += ["--net", "--uts", "--mount", "--pid", "env", f"--chdir={directory}"]
        return [*enter, *map(str, words)]

    def processes(self) -> List[psutil.Process]:
        """All of its processes, but for those that make it a host."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if _namespace(process.pid) == _namespace(self.pid) and process.name() not in PARTS:
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill all of its processes at once."""
        os.kill(self.pid, signal.SIGKILL)
        self.starter.wait()


def _namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


class Network:
    """Hosts h1, h2 and so on in one room.

    Args:
        directory: for their files; the home directory of their user is below it.
        interfaces: the name of each host's interface.
    """

    def __init__(self, directory: pathlib.Path, interfaces: Sequence[str]) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.interfaces = {f"h{n}": name for n, name in enumerate(interfaces, start=1)}
        self.package = debian.unpacked("openssh-server", dependencies=True)
        self._write_files()
        room = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
        self._room = _started([*room, "--mount-proc", "sh", "-c", ROOM, "sh", directory])
        self._pid = _innermost(self._room.pid)
        self.hosts: Dict[str, Host] = {}
        for name in self.interfaces:
            self.start(name)

    def _write_files(self) -> None:
        ssh = self.home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        for key in ("key", "host_key"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key])
        (self.directory / "sshd_config").write_text(SSHD.format(directory=self.directory))
        (ssh / "config").write_text(SSH.format(directory=self.directory))
        user = f"{USER}:x:{UID}:{UID}::{self.home}:/bin/bash\n"
        (self.directory / "passwd").write_text(f"root:x:0:0::/root:/bin/bash\n{user}")
        # nobody listens in the room
        lines = ["127.0.0.1 localhost", "::1 localhost", f"{NETWORK}.254 closed"]
        for number, name in enumerate(self.interfaces, start=1):
            lines += [f"{NETWORK}.{number} {name}", f"{NETWORK_6}:{number} {name}-ipv6"]
        (self.directory / "hosts").write_text("\n".join([*lines, ""]))

    def start(self, name: str) -> None:
        """Start a host, which has never run or has died."""
        number = name[1:]
        words = [name, self.interfaces[name], number, self.directory]
        words += [self.package / "usr/sbin/sshd", self.package / "usr/lib/x86_64-linux-gnu"]
        own = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc"]
        starter = _started(self.in_room(*own, "sh", "-c", HOST, "sh", *words))
        self.hosts[name] = Host(name, f"{NETWORK}.{number}", starter, _innermost(starter.pid))
        wait_for(
            lambda: self._answers(name), 20, lambda: (self.directory / f"{name}.log").read_text()
        )

    def _answers(self, name: str) -> bool:
        probe = f"exec 3<>/dev/tcp/{self.hosts[name].address}/22"
        return not subprocess.run(
            self.in_room("bash", "-c", probe), stderr=subprocess.PIPE
        ).returncode

    def in_room(self, *words: object) -> List[str]:
        """The command line that runs a command outside of the hosts, as root of all of them."""
        enter = ["nsenter", f"--target={self._pid}", "--user", "--net", "--mount", "--pid"]
        return [*enter, *map(str, words)]

    def slow_down(self, name: str, milliseconds: int, percent: int) -> None:
        """Delay all that goes to and from a host, and lose some of it, from now on.

        By VDE: tc(8) could, but kernels may lack its netem.
        """
        directory = self.directory / f"slow-{name}"
        directory.mkdir()
        package = debian.unpacked("vde2", dependencies=True)
        words = [self.interfaces[name], name[1:], directory, package, milliseconds, percent]
        self.as_root(name, "sh", "-c", SLOW_HOST, "sh", *words)
        run(self.in_room("sh", "-c", SLOW_ROOM, "sh", *words))

    def as_root(self, name: str, *words: object) -> str:
        """Run a command as root of a host; return its output."""
        spaces = [f"--{each}=/proc/{self.hosts[name].pid}/ns/{short}" for each, short in _SPACES]
        return run(["nsenter", f"--user=/proc/{self._pid}/ns/user", *spaces, *words])

    def processes(self) -> List[psutil.Process]:
        """All processes on hosts that run; see `Host.processes`."""
        running = [host for host in self.hosts.values() if host.starter.poll() is None]
        return [process for host in running for process in host.processes()]

    def plug(self, name: str, state: str) -> None:
        """Put the cable of a host in or out: ``up`` or ``down``."""
        run(self.in_room("ip", "link", "set", name, state))

    def stop(self) -> None:
        """End the room and all that is in it."""
        self._room.stdin.close()
        self._room.wait()
        for host in self.hosts.values():
            host.starter.wait()


def _started(command: Sequence[object]) -> subprocess.Popen:
    """Start a command, and wait until it is ready."""
    keywords = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(list(map(str, command)), **keywords)
    assert process.stdout.readline() == "ready\n", command
    return process


def _innermost(pid: int) -> int:
    """The last process of a chain of children."""
    children = psutil.Process(pid).children()
    return _innermost(children[0].pid) if children else pid
