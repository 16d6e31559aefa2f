"""What unit tests share."""

from __future__ import annotations

import tarfile

import pytest

from hvd import index, paths, recipe
from hvd.errors import HvdError


@pytest.fixture(scope="session")
def horovod_sdist(request):
    """The sdist of the recipe's Horovod, checked."""
    from tests.conftest import unmet

    version, sha256 = next(iter(recipe.load("py-horovod").versions().items()))
    path = paths.cache() / "sources" / "pip" / f"horovod-{version}.tar.gz"
    if not path.is_file() or index.digest(path) != sha256:
        try:
            index.fetch("horovod", path.name, sha256, path)
        except HvdError as error:
            unmet(request.config, "build", error.message)
    return path


@pytest.fixture(scope="session")
def horovod_sources(horovod_sdist) -> str:
    """The text of everything that decides how Horovod is built."""
    texts = []
    with tarfile.open(horovod_sdist) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if name == "setup.py" or name.startswith("cmake/") or name.endswith("CMakeLists.txt"):
                if member.isfile() and not name.startswith("third_party/"):
                    texts.append(archive.extractfile(member).read().decode())
    return "\n".join(texts)
