"""The hosts of a job, as its scheduler gives them, and those that the user names."""

from __future__ import annotations

import pathlib
from typing import List, Mapping, Optional

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hvd.core.errors import HvdError
from hvd.model.site import Partition

#: Of each scheduler: its variable with the hosts of a job, or with a file that has a line a slot.
_VARIABLES = {"slurm": "SLURM_JOB_NODELIST", "lsf": "LSB_DJOB_HOSTFILE", "pbs": "PBS_NODEFILE"}


def of_job(
    scheduler: str, partition: Partition, environ: Mapping[str, str]
) -> Optional[List[str]]:
    """Return the compute nodes of the job that has ``environ``; None outside of a job."""
    variable = _VARIABLES.get(scheduler, "")
    value = environ.get(variable, "")
    if scheduler == "slurm" and value:
        return _expanded(value, variable, "start inside a job")
    found: List[str] = []
    if value:
        try:
            found = pathlib.Path(value).read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            raise HvdError(f"{variable}: {error}", "start inside a job") from error
    elif scheduler == "lsf":
        # the number of slots is behind each host
        found = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
    hosts = list(dict.fromkeys(found))
    if hosts and partition.lsf and partition.lsf.launch_slots and scheduler == "lsf":
        del hosts[0]  # which only runs the script
    return hosts or None


def named(text: str) -> List[str]:
    """Return the hosts that ``--hosts`` names, such as ``server[1-4]``."""
    hint = "for example: --hosts 'server[1-4]'; ranks are asked for with --ranks-per-node"
    found = _expanded(text, "--hosts", hint)
    if not found or any(set(host) & set(": \t\n@") for host in found):
        raise HvdError(f"--hosts: '{text}' is not a list of hosts", hint)
    return found


def _expanded(text: str, origin: str, hint: str) -> List[str]:
    """Return the hosts of ``text``, each once, sorted as Slurm sorts them."""
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise HvdError(f"{origin}: '{text}': {error}", hint) from error
