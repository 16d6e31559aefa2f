"""Rehearse one environment: the stand-ins, the namespace, the steps, the result."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from typing import Dict, List, Mapping, Optional

import cattrs
from packaging.version import Version

from hvd.core import console, paths, stamp
from hvd.core.errors import HvdError
from hvd.core.steps import Step
from hvd.model import environment as environments
from hvd.model import site as sites
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.rehearse import declared, module_tools, namespace, result, stand_ins
from hvd.rehearse.declared import Declared
from hvd.rehearse.inside import Plan
from hvd.rehearse.result import Result, StepResult
from hvd.rehearse.stand_ins import Lacking, StandIn
from hvd.solve import repo_index, site_check

#: Of what Spack would build, those with libraries that are not on the Python index.
_UNFETCHED = ("cffi", "PyYAML")
_PYTHON = ("python", *stand_ins.FRAMEWORKS)


def directory(name: str) -> pathlib.Path:
    """Return where the rehearsal of an environment keeps its files."""
    return paths.state() / "rehearsals" / name


def run(name: str) -> Result:
    """Rehearse the environment called ``name``.

    Raises:
        HvdError: there is nothing to rehearse it with.
    """
    chosen = environments.load(name)
    if not chosen.site:
        raise HvdError(f"{name} is of this machine", f"./hvd run {name}")
    scratch = directory(name)
    (scratch / "made").mkdir(parents=True, exist_ok=True)
    for kind in ("tree", "modules", "published", "jupyter", "compilers"):
        stamp.clear(scratch / kind)
    log = scratch / "log"
    for old in (log, scratch / "steps.json"):
        old.unlink(missing_ok=True)
    console.heading(name)
    shown: Dict[str, str] = {}
    try:
        with console.step(Step("stand-ins")):
            found = declared.read(chosen)
            spec, variables, command = _prepare(chosen, found, scratch, shown, log)
    except HvdError as error:
        console.error(error)
        outcome = result.NOT_SHOWN if isinstance(error, Lacking) else result.FAILED
        steps = [StepResult("stand-ins", outcome, 0.0, error.message)]
        return _result(chosen, chosen.specs[0], shown, steps, log)
    subprocess.run(command, env={**os.environ, **variables}, check=False)
    steps_file = scratch / "steps.json"
    if not steps_file.exists():
        raise HvdError("the rehearsal was interrupted", log=log)
    steps = cattrs.structure(json.loads(steps_file.read_text()), List[StepResult])
    done = _result(chosen, spec, shown, steps, log)
    if done.passed:
        # gigabytes; where it failed, the next rehearsal goes on from them
        for made in ("made", "stand-ins", "state", "tree"):
            stamp.clear(scratch / made)
    return done


def _result(
    chosen: Environment,
    spec: str,
    shown: Mapping[str, str],
    steps: List[StepResult],
    log: pathlib.Path,
) -> Result:
    done = Result(
        environment=chosen.name,
        date=datetime.date.today().isoformat(),
        pair=pinned().pairs[0].name,
        files=result.digest(chosen),
        spec=spec,
        stand_ins=dict(shown),
        steps=steps,
        log=stamp.of(log),
    )
    result.save(directory(chosen.name) / "result.json", done)
    return done


def _prepare(
    chosen: Environment,
    found: List[Declared],
    scratch: pathlib.Path,
    shown: Dict[str, str],
    log: pathlib.Path,
):
    """Make all that the steps need; return the root spec, variables and the command for them.

    Args:
        shown: gets what each stand-in is.
    """
    # first what takes no time and may be lacking
    stand_ins.target(chosen)
    gpu = stand_ins.on_gpus(chosen, found)
    frameworks = stand_ins.frameworks(found, gpu)
    # this machine's own CUDA would be found by CMake and PyTorch
    cuda = [*map(str, pathlib.Path("/usr/local").glob("cuda*")), shutil.which("nvcc")]
    places: Dict[str, Optional[pathlib.Path]] = dict.fromkeys(filter(None, cuda))
    made: List[StandIn] = []
    python = next(each for each in found if each.package == "python")
    for each in found:
        if each.prefix == python.prefix or each.package in _PYTHON:
            places[each.prefix] = scratch / "made"
        elif gpu or each.package not in _GPU:
            made.append(stand_ins.make(each, scratch / "stand-ins", log))
            shown[made[-1].declared] = made[-1].what
            places.update(made[-1].places)
    own = ", ".join(str(each) for each in found if places.get(each.prefix) == scratch / "made")
    shown[own] = f"a venv of Python {frameworks.version} with {', '.join(frameworks.requirements)}"
    site = sites.of(chosen.name)
    partition = site.partitions[site.environments[chosen.name].partition]
    if partition.gpus and site.scheduler == "slurm":
        shown["Slurm's options for GPUs"] = "left out: Slurm has no GPUs here"
    if partition.pin:
        shown["taskset, numactl"] = "scripts that start the program on any core"
    if site.launcher == "ibrun":
        shown["ibrun"] = "a script that starts mpiexec.hydra"
    shown["py-cffi, py-pyyaml"] = "wheels, which ./hvd externals declares"
    spec = _copy(chosen, scratch / "tree", gpu, shown)
    hosts = scratch / "hosts"
    names = f"127.0.0.1 n1 n2 {socket.gethostname()}\n"
    hosts.write_text(pathlib.Path("/etc/hosts").read_text() + names)
    places["/etc/hosts"] = hosts
    system = site_check.architecture(spec)["os"]
    places["/etc/os-release"] = _os_release(system, scratch / "os-release")
    shown[f"os={system}"] = "this machine's, which says that it is that"
    lmod = module_tools.install("lmod")
    modules = _modulefiles(chosen, found, made, scratch / "modules")
    mpi = next(each for each in found if each.package in stand_ins.MPIS)
    login = [lmod.init, f"module use {modules}"]
    # Cray's is loaded from the beginning
    login += [f"module load {mpi.module}"] if mpi.package == "cray-mpich" else []
    own_frameworks = [each for each in found if each.package in stand_ins.FRAMEWORKS]
    plan = Plan(
        environment=chosen.name,
        login=login,
        mpi=mpi.package,
        python=frameworks.python,
        prefix=python.prefix,
        requirements=[
            *frameworks.requirements,
            *_beside(chosen, own_frameworks),
            *(
                f"{each.package[3:]}=={each.version}"
                for each in found
                if each.package.startswith("py-") and each.package not in _PYTHON
            ),
            *_UNFETCHED,
        ],
        brought={
            program: each.prefix
            for program, each in (("mpicxx", mpi), ("python3", python))
            # the stand-in of a framework brings its Python
            if each.modules and (each is mpi or not any(o.modules for o in own_frameworks))
        },
        directory=str(scratch),
        pair=pinned().pairs[0].name,
        cpu=not gpu and any(chosen.root.variants.get(name) for name in ("cuda", "rocm")),
    )
    (scratch / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
    # what Spack found out about a compiler, by its path: at that path is another one here
    found_out = repo_index.directory(plan.pair) / "compilers"
    for each in (found_out, scratch / "compilers"):
        each.mkdir(exist_ok=True)
    command = [*namespace.words(places), "--bind", str(scratch / "compilers"), str(found_out)]
    command += ["--", sys.executable, "-m", "hvd.rehearse.inside"]
    variables = {
        "HVD_STATE": str(scratch / "state"),
        paths.SITES_VARIABLE: str(scratch / "tree" / "environments"),
        "PYTHONPATH": str(paths.SOURCE),
    }
    if shutil.which("ccache"):
        variables["CCACHE_DIR"] = str(paths.cache() / "ccache")
    return spec, variables, [*command, str(scratch / "plan.json")]


#: What is used by a Horovod for GPUs alone.
_GPU = ("cuda", "nccl", "hip", "rccl", "hsa-rocr-dev", "llvm-amdgpu", "libfabric", "rdma-core")


def _copy(chosen: Environment, tree: pathlib.Path, gpu: bool, shown: Dict[str, str]) -> str:
    """Copy all environments and sites, with the changes that this machine needs.

    Returns:
        The root spec.
    """
    copied = tree / "environments"
    copied.mkdir(parents=True)
    # the first one wins, as everywhere
    for source in reversed(paths.environments()):
        subprocess.run(["cp", "-a", f"{source}/.", copied], check=True)
    for generated in (environments.EXTERNALS, "spack.lock"):
        (copied / chosen.name / generated).unlink(missing_ok=True)
    stamp.clear(copied / chosen.name / ".spack-env")
    for name in ("packages", "spack_repo", "repo.yaml"):
        (tree / name).symlink_to(paths.ROOT / name)
    spec_file = copied / chosen.name / "spack.yaml"
    spec = chosen.specs[0]
    for other in chosen.specs[1:]:
        _replace([spec_file], f"  - {other}\n", "")
        shown[other.split()[0]] = "left out: the Python index has no source of it"
    theirs, ours = stand_ins.target(chosen)
    files = [spec_file, *(copied / "hardware").glob("*/packages.yaml")]
    if theirs != ours:
        _replace(files, f"target={theirs}", f"target={ours}")
        spec = spec.replace(theirs, ours)
        shown[f"target={theirs}"] = f"target={ours}"
    variants = chosen.root.variants
    if not gpu and (variants.get("cuda") or variants.get("rocm")):
        externals = copied / environments.SITES / chosen.site / "packages.yaml"
        # the variant nccl is there with one for a GPU alone
        for old, new in (("+nccl", ""), ("+cuda", "~cuda"), ("+rocm", "~rocm")):
            _replace([spec_file, externals], old, new)
            spec = spec.replace(old, new)
        shown["GPUs"] = "the same spec for CPUs"
    return spec


def _os_release(system: str, file: pathlib.Path) -> pathlib.Path:
    """Write what names the operating system: Spack builds for the one that it is on."""
    name, version = re.fullmatch(r"([a-z]+)([\d.]+)", system).groups()
    file.write_text(f'ID={name}\nVERSION_ID="{version}"\n')
    return file


def _beside(chosen: Environment, frameworks: List[Declared]) -> List[str]:
    """Return what the page installs beside the frameworks; conda and modules bring NumPy."""
    make = sites.of(chosen.name).environments[chosen.name].make
    if make is None or "pytorch=" in " ".join(make.commands):
        # https://github.com/pytorch/pytorch/releases/tag/v2.3.0: the first for NumPy 2
        old = any(
            Version(each.version) < Version("2.3")
            for each in frameworks
            if each.package == "py-torch"
        )
        return ["numpy<2" if old else "numpy"]
    commands = [text.partition(" --index-url")[0] for text in make.commands]
    words = [word for text in commands for word in shlex.split(text.partition("pip install ")[2])]
    # conda's NAME=VERSION
    packages = [
        word.split("=") for text in commands if "conda create" in text for word in text.split()
    ]
    words += [f"{each[0]}=={each[1]}.*" for each in packages if len(each) == 2]
    return [word for word in words if not word.startswith(("torch", "tensorflow", "python"))]


def _replace(files: List[pathlib.Path], old: str, new: str) -> None:
    for file in files:
        file.write_text(file.read_text().replace(old, new))


def _modulefiles(
    chosen: Environment, found: List[Declared], made: List[StandIn], top: pathlib.Path
) -> pathlib.Path:
    """Write a modulefile for each module of the site; those of externals bring their prefixes."""
    texts = {name: "" for name in site_check.modules(sites.of(chosen.name))}
    variables = {each.declared: each.variables for each in made}
    for each in found:
        if each.module:
            prefix = each.prefix
            settings = variables.get(str(each), {})
            if "I_MPI_ROOT" in settings:
                prefix = settings["I_MPI_ROOT"]
            lines = [f'prepend_path("PATH", "{prefix}/bin")']
            lines += [f'prepend_path("LD_LIBRARY_PATH", "{prefix}/lib:{prefix}/lib/libfabric")']
            lines += [f'setenv("{name}", "{value}")' for name, value in settings.items()]
            texts[each.module] += "".join(f"{line}\n" for line in lines)
    for name, text in texts.items():
        file = top / f"{name}.lua"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'whatis("a stand-in")\n{text}')
    return top
