"""What solutions build and rehearsals do not: Python packages that the frameworks bring there, and
packages in C, of which Debian has some with the source that Spack wants."""

from __future__ import annotations

import hashlib
import json
import lzma
import pathlib
import re
from typing import Any, Collection, Dict, List

import pytest
import requests
import yaml

from hvd.core import process
from hvd.core.files import write_atomically
from hvd.model import environment as environments
from hvd.model.versions import pinned
from hvd.solve import kept, queries
from hvd.solve.spack import Spack
from tests import debian
from tests.conftest import locate_spack
from tests.rehearsal import result, stand_ins

#: Releases of Debian whose source packages are looked through.
SUITES = ("bookworm", "trixie", "sid")
#: What Debian's packages bring of what packages in C depend on.  Spack patches readline, and
#: Debian does not have the patches.
EXTERNALS = {
    "libiconv@1.17": ("libc6-dev",),
    "libxml2@2.9.14": ("libxml2-dev", "libxml2"),
    "ncurses@6.4": ("libncurses-dev", "libncurses6", "libncursesw6", "libtinfo6"),
    "readline@8.2": ("libreadline-dev", "libreadline8"),
    "tar@1.34": ("tar",),
    "util-macros@1.19": ("xutils-dev",),
    "xz@5.4": ("xz-utils",),
}
#: Prints the checksums of packages' sources.
SUMS = """
import json, sys
import spack.repo
found = {}
for package in sys.argv[1:]:
    name, _, wanted = package.partition("@")
    versions = spack.repo.PATH.get_pkg_class(name).versions.items()
    found[package] = next(known.get("sha256") for each, known in versions if str(each) == wanted)
print(json.dumps(found))
"""
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


def debian_sources(sums: Collection[str]) -> Dict[str, bytes]:
    """Files of Debian's source packages that have these checksums, and are still there."""
    (site, *_) = process.output("apt-get", "indextargets", "--format", "$(SITE)").split()
    found: Dict[str, bytes] = {}
    for suite in SUITES:
        reply = requests.get(f"{site}/dists/{suite}/main/source/Sources.xz", timeout=60)
        reply.raise_for_status()
        for package in lzma.decompress(reply.content).decode().split("\n\n"):
            directory = re.search(r"^Directory: (\S+)", package, re.MULTILINE)
            for sha256, file in re.findall(r"^ ([0-9a-f]{64}) \d+ (\S+)$", package, re.MULTILINE):
                if sha256 in {*sums} - {*found}:
                    content = requests.get(f"{site}/{directory[1]}/{file}", timeout=60).content
                    if hashlib.sha256(content).hexdigest() == sha256:
                        found[sha256] = content
    return found


def external(spec: str, prefix: object) -> Dict[str, Any]:
    return {"buildable": False, "externals": [{"spec": spec, "prefix": str(prefix)}]}


@pytest.fixture
def spack(tmp_path, monkeypatch) -> Spack:
    monkeypatch.setenv("HVD_STATE", str(tmp_path))
    found = locate_spack(pinned().pairs[0].name, tmp_path / "log")
    found.configure(jobs=2)
    found.find_tools(tmp_path / "log", [])
    return found


@pytest.fixture
def build(spack, tmp_path, request):
    """Build packages by themselves; with --write-results, keep that, and the page follows."""
    log = tmp_path / "log"

    def install(specs: List[str], packages: Dict[str, Any], where: str, files=()) -> None:
        content = {
            "specs": specs,
            "view": False,
            "concretizer": {"unify": "when_possible", "reuse": False},
            "packages": packages,
        }
        directory = tmp_path / "environment"
        directory.mkdir()
        (directory / "spack.yaml").write_text(yaml.safe_dump({"spack": content}))
        spack.concretize(directory, log, local=True)
        for each in spack.ask(directory, queries.SOURCES, log) if files else ():
            if each["sha256"] in files:
                write_atomically(spack.mirror / each["path"], files[each["sha256"]])
        spack.fetch_sources(directory, log, lambda said: None)
        spack.run("-e", directory, "install", "--no-cache", log=log, timeout=1800)
        assert spack.run("-e", directory, "find", *specs, log=log).output
        if request.config.getoption("--write-results"):
            known = json.loads(result.ALONE.read_text()) if result.ALONE.exists() else {}
            known.update(dict.fromkeys(specs, where))
            text = json.dumps(known, indent=1, sort_keys=True)
            write_atomically(result.ALONE, f"{text}\n".encode())
            result.PAGE.write_text(result.page())

    return install


@pytest.mark.parametrize("series", wanted())
def test_python_packages_are_built_by_themselves(series, build):
    python = stand_ins.python(series)
    if not python:
        pytest.skip(f"no Python {series} is here")
    prefix = pathlib.Path(python).resolve().parents[1]
    packages = {
        "python": external(f"python@{process.output(python, '-c', VERSION)}", prefix),
        # its source is not on the Python index
        "libffi": external("libffi@3.4", "/usr"),
        "pkgconf": external("pkgconf@1.8", "/usr"),
    }
    build(wanted()[series], packages, series)


def test_packages_whose_sources_debian_has_are_built_by_themselves(spack, build, tmp_path):
    """A file of Debian's that has the checksum which Spack's recipe wants is that source."""
    program = tmp_path / "sums.py"
    program.write_text(SUMS)
    others = [each for each in result.unbuilt(alone=False) if not each.startswith("py-")]
    output = spack.run("python", program, *others, log=tmp_path / "log").output
    sums = json.loads(output.splitlines()[-1])
    files = debian_sources(sums.values())
    outside = {spec.partition("@")[0] for spec in EXTERNALS}
    specs = [
        package
        for package, sha256 in sums.items()
        if sha256 in files and package.partition("@")[0] not in outside
    ]
    assert specs
    packages = {
        spec.partition("@")[0]: external(spec, debian.unpacked(*names) / "usr")
        for spec, names in EXTERNALS.items()
    }
    if not any(each.startswith("pkgconf@") for each in specs):
        packages["pkgconf"] = external("pkgconf@1.8", "/usr")
    build(specs, packages, "Debian's source", files)
