"""A Spack that is a stand-in, and an interpreter that there never was."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, List

from hvd.model import environment
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.solve import site_check
from hvd.solve.spack import Spack

VERSIONS = {"torch": "2.13.0", "setuptools": "82.0.0"}
NEEDED = ("numpy", "cloudpickle", "psutil", "pyyaml", "packaging", "setuptools", "cffi")
PYTHON = {"version": "3.8.18", "prefix": "/site", "executable": "/site/bin/python", "header": True}


def interpreter(*frameworks: str) -> Dict[str, Any]:
    """What an interpreter has, see `hvd.host.externals.ask`."""
    distributions = {
        name: {"version": VERSIONS.get(name, "2.15.0"), "prefix": "/site"}
        for name in (*NEEDED, *frameworks)
    }
    return {"python": {**PYTHON}, "distributions": distributions, "frameworks": {}}


#: Answers as `plan.json` beside it says, and writes down what it was asked.
PROGRAM = """#!{python}
import json, os, pathlib, sys
home, words = pathlib.Path({home!r}), sys.argv[2:]
with open(home / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
plan = json.loads((home / "plan.json").read_text())
if plan["fails"] in words:
    sys.exit("==> Error: it fails")
if "find" in words and plan["compiler"]:
    attributes = {{"compilers": {{"cxx": "/usr/bin/c++"}}}}
    externals = [{{"spec": "gcc@12.2.0", "extra_attributes": attributes}}]
    scope = pathlib.Path(os.environ["SPACK_USER_CONFIG_PATH"])
    text = json.dumps({{"packages": {{"gcc": {{"externals": externals}}}}}})
    (scope / "packages.yaml").write_text(text)
if "concretize" in words:
    directory = pathlib.Path(words[words.index("-e") + 1])
    lock = plan["locks"].get(directory.name, plan["lock"])
    (directory / "spack.lock").write_text(json.dumps({{"concrete_specs": lock}}))
if "python" in words:
    print("==> a warning")
    print(json.dumps(plan[pathlib.Path(words[words.index("python") + 1]).stem]))
"""


def spec(
    name, version="1.0", dependencies=(), external=None, modules=None, recipe="r", **parameters
):
    """A concrete spec as in a lock file; what it needs by (name, hash, virtuals)."""
    found = {
        "name": name,
        "version": version,
        "arch": {"platform": "linux", "platform_os": "debian12", "target": {"name": "zen3"}},
        "parameters": {"build_system": "generic", "cflags": [], **parameters},
        "package_hash": recipe,
        "dependencies": [
            {"name": n, "hash": h, "parameters": {"deptypes": ["link"], "virtuals": v}}
            for n, h, v in dependencies
        ],
    }
    if external or modules:
        found["external"] = {"path": external or None, "module": modules}
    return found


VARIANTS = {"mpi": True, "gloo": True, "cuda": False, "frameworks": ["pytorch"]}
#: A solution of `pytorch_environment`.
LOCK = {
    "a": spec("py-horovod", "0.28.1", **VARIANTS),
    "b": spec("python", "3.8.18", external="/site"),
    "c": spec("py-torch", "2.13.0", external="/site"),
}
BUILT = {
    "changes": [{"kind": "prepend", "name": "PATH", "value": "/opt/bin", "separator": ":"}],
    "other": [],
    "modules": ["openmpi/4"],
    "compiler": {"name": "gcc", "version": "12.2.0"},
    "mpi": {"name": "openmpi", "version": "4.1.8"},
    "parts": [
        {"hash": key, "licence": "", "prefix": "/p", "runs": True, "bom": ""} for key in LOCK
    ],
}


class FakeSpack:
    """A stand-in for ``spack`` below ``home``, which solves and builds `pytorch_environment`.

    `let` changes what it does: ``lock``, the concrete specs that it solves any environment with,
    and ``locks``, those of an environment by its name; ``fails``, a word that makes it fail; what
    a program of ``solve/queries`` prints, by name; ``compiler``, whether it finds one.
    """

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        for name, text in (
            ("bin/spack", PROGRAM.format(python=sys.executable, home=str(home))),
            ("share/spack/setup-env.sh", 'spack() { export SEEN="$HVD_SITES $3"; }\n'),
            ("lib/spack/spack/__init__.py", '__version__ = "1.2.0"\n'),
        ):
            (home / name).parent.mkdir(parents=True)
            (home / name).write_text(text)
        (home / "bin/spack").chmod(0o755)
        prune = {"unneeded": ["llvm"], "compilers_here": True}
        self.plan = {"lock": LOCK, "locks": {}, "fails": "", "compiler": True}
        self.let(prune=prune, sources=[], built=BUILT)
        self.spack = Spack(home, home / "packages", pinned().pairs[0], {})

    def let(self, **changes: Any) -> None:
        """Change the plan."""
        self.plan.update(changes)
        (self.home / "plan.json").write_text(json.dumps(self.plan))

    def calls(self) -> List[List[str]]:
        """The arguments of each call since the last time."""
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def commands(self) -> List[str]:
        """The same, each by the command, or the query, that it is."""
        told = ("find", "concretize", "install", "uninstall", "prune.py", "sources.py")
        names = [pathlib.Path(word).name for words in self.calls() for word in words]
        return [name.replace(".py", "") for name in names if name in told]


def pytorch_environment() -> Environment:
    """An environment for this machine, in a directory of its own."""
    return environment.derive(
        environment.load("local-hvd"), "py-horovod@0.28.1 +mpi+gloo frameworks:=pytorch"
    )


def site_solution(name: str) -> Dict[str, Any]:
    """A solution of a site's environment: Horovod is built, all else is the site's."""
    chosen = environment.load(name)
    variants = {k: v if v in (True, False) else sorted(v) for k, v in chosen.root.variants.items()}
    nodes = [spec(environment.HOROVOD, chosen.root.versions, **variants)]
    nodes.append(spec("py-psutil", "7.2.2"))
    for package, entries in site_check.externals(site_check.file(chosen.site)).items():
        version, prefix, modules = entries[0]
        nodes.append(spec(package, version, external=prefix, modules=list(modules) or None))
    wanted = site_check.architecture(chosen.specs[0])
    for each in nodes:
        each["arch"].update(platform_os=wanted["os"], target={"name": wanted["target"]})
    return {str(number): each for number, each in enumerate(nodes)}
