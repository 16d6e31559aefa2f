"""The key that signs what jobs push, in a keyring that lives as long as one job.

Runners keep their files, and jobs of anybody's branch run on them: the next job would find a key
in Spack's own keyring.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import pathlib
import tempfile
from typing import Iterator

from hvd.core import paths
from hvd.core.errors import HvdError

#: Base64 of the armoured secret key, as in Spack's own jobs: a protected variable.
KEY = "SPACK_SIGNING_KEY"
#: GitLab sets it to ``true`` on protected branches and tags.
PROTECTED = "CI_COMMIT_REF_PROTECTED"


def take() -> str:
    """Take the key out of the environment, where every program would see it.

    Returns:
        The key; empty without one, or on a branch that is not protected.
    """
    key = os.environ.pop(KEY, "")
    return key if os.environ.get(PROTECTED) == "true" else ""


@contextlib.contextmanager
def keyring(sign: bool) -> Iterator[pathlib.Path]:
    """Give Spack an empty keyring and yield its directory.

    With ``sign``, Spack fails rather than push without a signature.
    """
    # in /tmp: the path of gpg-agent's socket may have 108 characters
    with tempfile.TemporaryDirectory(prefix="hvd-gpg-", dir="/tmp") as home:
        variables = {"SPACK_REQUIRE_SIGNING": str(sign), paths.KEYRING_VARIABLE: home}
        os.environ.update(variables)
        try:
            yield pathlib.Path(home)
        finally:
            for name in variables:
                del os.environ[name]


def write(key: str, home: pathlib.Path) -> pathlib.Path:
    """Write the armoured key to a file of the keyring ``home``, for ``spack gpg trust``.

    Raises:
        HvdError: the key is not base64; the message does not show it.
    """
    try:
        text = base64.b64decode(key, validate=True)
    except binascii.Error:
        raise HvdError(
            f"{KEY} is not base64",
            "set it to the output of: gpg --export-secret-keys --armor KEY | base64 -w0",
        ) from None
    file = home / "key"
    file.touch(0o600, exist_ok=False)
    file.write_bytes(text)
    return file
