"""Which hosts a job has: from the scheduler, or as the user names them.

Lists of hosts are read with ClusterShell, for all the ways in which they are written.
"""

from __future__ import annotations

import pathlib
from typing import List, Mapping, Optional

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hvd.core.errors import HvdError


def named(text: str) -> List[str]:
    """The hosts of ``text``, for example ``server[1-4]``, in order and each once.

    Raises:
        HvdError: it is no list of hosts.
    """
    remedy = "for example: --hosts 'server[1-4]'; ranks are asked for with --ranks-per-node"
    found = _read(text, "--hosts", remedy)
    if not found or any(set(host) & set(": \t\n@") for host in found):
        raise HvdError(f"--hosts: '{text}' is not a list of hosts", remedy)
    return found


def of_job(scheduler: str, launch_node: bool, environ: Mapping[str, str]) -> Optional[List[str]]:
    """The compute nodes of the job that we are in; None outside of one.

    Slurm gives them in SLURM_JOB_NODELIST; LSF in the file LSB_DJOB_HOSTFILE, with a line for
    each slot, or in LSB_MCPU_HOSTS, with the slots behind each host.

    Args:
        launch_node: whether the first of LSF's hosts only runs the script.

    Raises:
        HvdError: the hosts cannot be read.
    """
    if scheduler == "slurm":
        nodes = environ.get("SLURM_JOB_NODELIST", "")
        return _read(nodes, "SLURM_JOB_NODELIST", "is this a Slurm job?") if nodes else None
    if scheduler != "lsf":
        return None
    slots = _slots(environ)
    if not slots:
        return None
    compute = [host for host in slots if host != slots[0]] if launch_node else slots
    return list(NodeSet.fromlist(compute, resolver=RESOLVER_NOGROUP))


def _read(text: str, origin: str, remedy: str) -> List[str]:
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise HvdError(f"{origin}: '{text}': {error}", remedy) from error


def _slots(environ: Mapping[str, str]) -> List[str]:
    """LSF's hosts, the first one first."""
    file = environ.get("LSB_DJOB_HOSTFILE", "")
    if not file:
        return environ.get("LSB_MCPU_HOSTS", "").split()[::2]
    try:
        return pathlib.Path(file).read_text().split()
    except OSError as error:
        raise HvdError(
            f"LSB_DJOB_HOSTFILE: {file}: {error.strerror}", "start from within the LSF job"
        ) from error
