"""The keys that sign packages and verify them, in a keyring of this checkout.

The user's own keyring in ``~/.gnupg`` is neither read nor written.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from typing import List, Optional

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.files import write_atomically

_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
#: Bytes of a socket's path on Linux, unix(7), and gpg-agent's longest name.
_SOCKET, _LONGEST = 107, "/S.gpg-agent.extra"


@dataclasses.dataclass(frozen=True)
class Key:
    """A key."""

    fingerprint: str  #: 40 hexadecimal digits
    owner: str  #: name and address
    secret: bool  #: it can sign here


def keys(directory: Optional[pathlib.Path] = None) -> List[Key]:
    """All keys of the keyring, or of the one in ``directory``.

    Raises:
        HvdError: there is no gpg.
    """
    return _listed(_gpg("--list-keys", "--with-secret", "--with-colons", directory=directory))


def create(name: str, email: str) -> Key:
    """Make a signing key without a passphrase.

    Raises:
        HvdError: the owner is incomplete, or gpg failed.
    """
    owner = f"{name} <{email}>"
    if not name.strip() or not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", email):
        raise HvdError(f"'{owner}' cannot own a key", "give both: --name NAME --email ADDRESS")
    known = keys()
    _gpg("--passphrase", "", "--quick-generate-key", owner, "ed25519", "sign", "never")
    return next(key for key in keys() if key not in known)


def add(file: pathlib.Path, fingerprint: str = "") -> List[Key]:
    """Import the keys in ``file``: secret ones to sign with, public ones to trust.

    Args:
        file: as gpg exports it, armoured or not.
        fingerprint: of the only key that may be in it.

    Raises:
        HvdError: there is no key in it, or another one.
    """
    if not file.is_file():
        raise HvdError(f"there is no {file}", "name a file with a key; see: gpg --export --armor")
    inside = [
        key.fingerprint for key in _listed(_gpg("--show-keys", "--with-colons", file, check=False))
    ]
    if not inside:
        raise HvdError(f"{file} has no key in it", "make one with: gpg --export --armor")
    if fingerprint and inside != [fingerprint]:
        raise HvdError(
            f"{file} has the key {', '.join(inside)}, and not {fingerprint}",
            "ask those who push for the fingerprint of their key",
        )
    _gpg("--import", file)
    # ultimate trust, as in Spack: no key in this keyring certifies another
    _gpg("--import-ownertrust", text="".join(f"{each}:6:\n" for each in inside))
    return [key for key in keys() if key.fingerprint in inside]


def export(fingerprint: str, file: pathlib.Path, directory: Optional[pathlib.Path] = None) -> None:
    """Write the public key, of this keyring or of the one in ``directory``, to ``file``.

    Raises:
        HvdError: the file cannot be written.
    """
    text = _gpg("--armor", "--export", fingerprint, directory=directory)
    write_atomically(file, text.encode())


def signing(wanted: str = "") -> Key:
    """The key to sign with.

    Args:
        wanted: its fingerprint, the end of it, or a part of its owner, as gpg takes it; needed
            where there are several.

    Raises:
        HvdError: no key matches, or several do.
    """
    listing = ("--list-secret-keys", "--with-colons")
    mine = _listed(_gpg(*listing))
    if not mine:
        raise HvdError(
            "there is no key to sign with",
            "make one: ./hvd cache key --name NAME --email ADDRESS; or import one: --add FILE",
        )
    found = _listed(_gpg(*listing, wanted, check=False)) if wanted else mine
    if len(found) != 1:
        listed = ", ".join(f"{key.fingerprint} ({key.owner})" for key in mine)
        raise HvdError(
            f"{'several keys match' if found else 'no key matches'} '{wanted}'",
            f"name one with --key: {listed}",
        )
    return found[0]


def is_fingerprint(text: str) -> bool:
    """Tell a whole fingerprint from the end of one, which is not unique."""
    return bool(_FINGERPRINT.fullmatch(text.replace(" ", "").upper()))


def prepare(directory: pathlib.Path) -> None:
    """Make ``directory`` a place where gpg can keep a keyring.

    Raises:
        HvdError: there is no gpg, or its sockets cannot be there.
    """
    if not shutil.which("gpg") or not shutil.which("gpgconf"):
        raise HvdError("gpg is not on PATH", "install it: the package gnupg, or gnupg2")
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    # sockets below /run/user, if that exists; as in Spack
    create = ["gpgconf", "--homedir", str(directory), "--create-socketdir"]
    failed = subprocess.run(create, capture_output=True).returncode
    if failed and len(os.fsencode(f"{directory}{_LONGEST}")) > _SOCKET:
        raise HvdError(
            f"{directory} is too long a path for the sockets of gpg-agent",
            f"set {paths.KEYRING_VARIABLE} to a private directory with a shorter path",
        )


def _listed(output: str) -> List[Key]:
    """The primary keys in what gpg lists ``--with-colons``; see doc/DETAILS of GnuPG."""
    found: List[Key] = []
    # a primary key's record comes first, then its fingerprint and its owners, then its subkeys
    for record in re.split(r"^(?=pub:|sec:)", output, flags=re.MULTILINE)[1:]:
        lines = [line.split(":") for line in record.splitlines()]
        fingerprint = next(fields[9] for fields in lines if fields[0] == "fpr")
        owner = next((fields[9] for fields in lines if fields[0] == "uid"), "")
        found.append(Key(fingerprint, owner, secret=bool(lines[0][14])))
    return found


def _gpg(
    *arguments: object,
    directory: Optional[pathlib.Path] = None,
    check: bool = True,
    text: str = "",
) -> str:
    """The output of gpg with ``text`` as its input."""
    where = directory or paths.keyring()
    prepare(where)
    command = ["gpg", "--homedir", where, "--batch", "--no-tty", "--yes", *arguments]
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True)
    if check and done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HvdError(f"gpg {arguments[0]}: {last}", f"see: gpg --homedir {where} --list-keys")
    return done.stdout
