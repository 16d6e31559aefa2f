"""Python packages that solutions build and rehearsals do not: the frameworks bring them there."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

import pytest
import yaml

from hvd.core import process
from hvd.core.files import write_atomically
from hvd.model import environment as environments
from hvd.model.versions import pinned
from hvd.solve import kept
from tests.conftest import locate_spack
from tests.rehearsal import result, stand_ins

VERSION = "import platform; print(platform.python_version())"


def series_of(name: str) -> str:
    """The series of the site's Python in an environment's solution."""
    packages = kept.load(environments.load(name)).packages
    (version,) = (each.version for each in packages if each.name == "python")
    return ".".join(version.split(".")[:2])


def wanted() -> Dict[str, List[str]]:
    """Packages that rehearsals do not build, by series of Python."""
    found: Dict[str, List[str]] = {}
    for package, names in result.unbuilt(alone=False).items():
        if package.startswith("py-"):
            # of the newest: a site's packages are often older than what others choose
            newest = max(map(series_of, names), key=lambda each: int(each.partition(".")[2]))
            found.setdefault(newest, []).append(package)
    return found


def external(spec: str, prefix: object) -> Dict[str, Any]:
    return {"buildable": False, "externals": [{"spec": spec, "prefix": str(prefix)}]}


@pytest.mark.parametrize("series", wanted())
def test_packages_are_built_by_themselves(series, tmp_path, monkeypatch, request):
    """With --write-results, what was built is kept, and the page follows."""
    python = stand_ins.python(series)
    if not python:
        pytest.skip(f"no Python {series} is here")
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    log = tmp_path / "log"
    spack = locate_spack(pinned().pairs[0].name, log)
    spack.configure(jobs=2)
    spack.find_tools(log, [])
    prefix = pathlib.Path(python).resolve().parents[1]
    packages = {
        "python": external(f"python@{process.output(python, '-c', VERSION)}", prefix),
        # its source is not on the Python index
        "libffi": external("libffi@3.4", "/usr"),
        "pkgconf": external("pkgconf@1.8", "/usr"),
    }
    content = {
        "specs": wanted()[series],
        "view": False,
        "concretizer": {"unify": "when_possible", "reuse": False},
        "packages": packages,
    }
    directory = tmp_path / "environment"
    directory.mkdir()
    (directory / "spack.yaml").write_text(yaml.safe_dump({"spack": content}))
    spack.concretize(directory, log, local=True)
    spack.fetch_sources(directory, log, lambda said: None)
    spack.run("-e", directory, "install", "--no-cache", log=log, timeout=1800)
    assert spack.run("-e", directory, "find", *content["specs"], log=log).output
    if request.config.getoption("--write-results"):
        known = json.loads(result.ALONE.read_text()) if result.ALONE.exists() else {}
        known.update(dict.fromkeys(content["specs"], series))
        text = json.dumps(known, indent=1, sort_keys=True)
        write_atomically(result.ALONE, f"{text}\n".encode())
        result.PAGE.write_text(result.page())
