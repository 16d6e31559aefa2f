"""The key that signs what jobs push: in a keyring that lives as long as one job.

Runners keep their files, and jobs of anybody's branch run on them: a key in Spack's own keyring
would be there for the next of them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import pathlib
import tempfile
from typing import Iterator

from hvd.core.errors import HvdError

#: Base64 of the armoured secret key, as Spack's own jobs have it: a protected variable.
KEY = "SPACK_SIGNING_KEY"
#: What GitLab sets to ``true`` on protected branches and tags.
PROTECTED = "CI_COMMIT_REF_PROTECTED"
_REQUIRE = "SPACK_REQUIRE_SIGNING"
_HOME = "SPACK_GNUPGHOME"


def take() -> str:
    """Take the key out of the environment, where every program would see it.

    Returns:
        The key; empty where there is none, or on a branch that is not protected.
    """
    key = os.environ.pop(KEY, "")
    return key if os.environ.get(PROTECTED) == "true" else ""


@contextlib.contextmanager
def keyring(sign: bool) -> Iterator[pathlib.Path]:
    """An empty keyring for Spack, and the directory that it is in.

    Args:
        sign: whether Spack has to sign, and so fails rather than push without a signature.
    """
    # in /tmp: the path of gpg-agent's socket has 108 characters at most
    with tempfile.TemporaryDirectory(prefix="hvd-gpg-", dir="/tmp") as home:
        os.environ.update({_REQUIRE: str(sign), _HOME: home})
        try:
            yield pathlib.Path(home)
        finally:
            for name in (_REQUIRE, _HOME):
                del os.environ[name]


@contextlib.contextmanager
def as_file(key: str, directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """The armoured key in a file for its owner alone, as ``spack gpg trust`` takes it.

    Raises:
        HvdError: it is not what the variable has to be; does not say what it is.
    """
    try:
        text = base64.b64decode(key, validate=True)
    except binascii.Error:
        raise HvdError(
            f"{KEY} is not base64",
            "set it to what this prints: gpg --export-secret-keys --armor KEY | base64 -w0",
        ) from None
    path = directory / "key"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
        sink.write(text)
    try:
        yield path
    finally:
        path.unlink()
