"""The keys that packages are signed with and checked against: a keyring of this checkout.

The user's own, in ``~/.gnupg``, is neither read nor written.
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
#: Bytes of a socket's path that Linux takes, unix(7), and gpg-agent's longest name.
_SOCKET, _LONGEST = 107, "/S.gpg-agent.extra"


@dataclasses.dataclass(frozen=True)
class Key:
    """A key: its fingerprint in 40 hexadecimal digits, its owner, whether it can sign here."""

    fingerprint: str
    owner: str
    secret: bool


def keys(directory: Optional[pathlib.Path] = None) -> List[Key]:
    """All keys of the keyring, or of the one in ``directory``.

    Raises:
        HvdError: there is no gpg.
    """
    secret = _listed(_gpg("--list-secret-keys", "--with-colons", directory=directory))
    public = _listed(_gpg("--list-keys", "--with-colons", directory=directory))
    mine = {fingerprint for fingerprint, _ in secret}
    return [Key(fingerprint, owner, fingerprint in mine) for fingerprint, owner in public]


def create(name: str, email: str) -> Key:
    """Make a key to sign with, without a passphrase, and return it.

    Raises:
        HvdError: gpg could not.
    """
    if not name.strip() or not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", email):
        raise HvdError(
            f"'{name} <{email}>' is no owner of a key", "give both: --name NAME --email ADDRESS"
        )
    owner = f"{name} <{email}>"
    known = {key.fingerprint for key in keys()}
    _gpg("--passphrase", "", "--quick-generate-key", owner, "ed25519", "sign", "never")
    return next(key for key in keys() if key.fingerprint not in known)


def add(file: pathlib.Path, fingerprint: str = "") -> List[Key]:
    """Take the keys in ``file`` into the keyring: secret ones to sign with, the others to trust.

    Args:
        file: as gpg exports it, armoured or not.
        fingerprint: of the only key that may be in it.

    Raises:
        HvdError: there is no key in it, or another one.
    """
    if not file.is_file():
        raise HvdError(f"there is no {file}", "name a file with a key; see: gpg --export --armor")
    shown = _gpg("--show-keys", "--with-colons", file, check=False)
    inside = [found for found, _ in _listed(shown)]
    if not inside:
        raise HvdError(f"{file} has no key in it", "make one with: gpg --export --armor")
    if fingerprint and inside != [fingerprint]:
        raise HvdError(
            f"{file} has the key {', '.join(inside)}, and not {fingerprint}",
            "ask those who push for the fingerprint of their key",
        )
    _gpg("--import", file)
    # ultimately, as Spack does it: in this keyring there is nobody to certify another's key
    _gpg("--import-ownertrust", text="".join(f"{found}:6:\n" for found in inside))
    return [key for key in keys() if key.fingerprint in inside]


def export(fingerprint: str, file: pathlib.Path, directory: Optional[pathlib.Path] = None) -> None:
    """Write the public key to ``file``, for those who are to trust it.

    Args:
        directory: of the keyring, where it is another.

    Raises:
        HvdError: the file cannot be written.
    """
    text = _gpg("--armor", "--export", fingerprint, directory=directory)
    write_atomically(file, text.encode())


def signing(wanted: str = "") -> Key:
    """The key to sign with.

    Args:
        wanted: its fingerprint, the end of it, or a part of its owner.

    Raises:
        HvdError: none or several can be meant.
    """
    mine = [key for key in keys() if key.secret]
    found = [
        key
        for key in mine
        if key.fingerprint.endswith(wanted.upper()) or wanted.lower() in key.owner.lower()
    ]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{key.fingerprint} ({key.owner})" for key in mine)
    if not mine:
        raise HvdError(
            "there is no key to sign with",
            "make one: ./hvd cache key --name NAME --email ADDRESS; or have one: --add FILE",
        )
    raise HvdError(
        f"{'several keys' if found else 'no key'} to sign with can be meant by '{wanted}'",
        f"name one with --key: {listed}",
    )


def is_fingerprint(text: str) -> bool:
    """Whether it is a whole fingerprint, and not the end of one, which others can have."""
    return bool(_FINGERPRINT.fullmatch(text.replace(" ", "").upper()))


def _listed(output: str) -> List[tuple]:
    """Fingerprint and owner of each primary key in what gpg lists ``--with-colons``."""
    found: List[tuple] = []
    fingerprint = ""
    for line in output.splitlines():
        field = line.split(":")
        if field[0] in ("pub", "sec"):
            fingerprint = ""
        elif field[0] == "fpr" and not fingerprint:
            fingerprint = field[9]
            found.append((fingerprint, ""))
        elif field[0] == "uid" and found and not found[-1][1]:
            found[-1] = (found[-1][0], field[9])
    return [(key, owner) for key, owner in found if key]


def _gpg(
    *arguments: object,
    directory: Optional[pathlib.Path] = None,
    check: bool = True,
    text: str = "",
) -> str:
    """What gpg prints when it is given ``text``."""
    where = directory or paths.keyring()
    prepare(where)
    command = ["gpg", "--homedir", where, "--batch", "--no-tty", "--yes", *arguments]
    words = [str(word) for word in command]
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if check and done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HvdError(f"gpg {arguments[0]}: {last}", f"see: gpg --homedir {where} --list-keys")
    return done.stdout


def prepare(directory: pathlib.Path) -> None:
    """Have a place for a keyring that gpg can work in.

    Raises:
        HvdError: there is no gpg, or its sockets cannot be there.
    """
    if not shutil.which("gpg") or not shutil.which("gpgconf"):
        raise HvdError("gpg is not on PATH", "install it: the package gnupg, or gnupg2")
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    # below /run/user, where that is; as Spack does it, too
    made = subprocess.run(
        ["gpgconf", "--homedir", str(directory), "--create-socketdir"], capture_output=True
    )
    if made.returncode and len(os.fsencode(f"{directory}{_LONGEST}")) > _SOCKET:
        raise HvdError(
            f"{directory} is too long a path for the sockets of gpg-agent",
            f"set {paths.KEYRING_VARIABLE} to a directory with a shorter one, of yours alone",
        )
