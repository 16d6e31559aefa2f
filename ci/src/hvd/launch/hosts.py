"""Lists of hosts, read by ClusterShell."""

from __future__ import annotations

from typing import List

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hvd.core.errors import HvdError


def named(text: str) -> List[str]:
    """Return the hosts that ``--hosts`` names, such as ``server[1-4]``, each once.

    Raises:
        HvdError: ``text`` is no list of hosts.
    """
    hint = "for example: --hosts 'server[1-4]'; ranks are asked for with --ranks-per-node"
    found = read(text, "--hosts", hint)
    if not found or any(set(host) & set(": \t\n@") for host in found):
        raise HvdError(f"--hosts: '{text}' is not a list of hosts", hint)
    return found


def read(text: str, origin: str, hint: str) -> List[str]:
    """Return the hosts of ``text``, which comes from ``origin``, in order and each once.

    Raises:
        HvdError: it cannot be read.
    """
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise HvdError(f"{origin}: '{text}': {error}", hint) from error
