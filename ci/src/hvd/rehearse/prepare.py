"""Make what a rehearsal needs: stand-ins, modules, a copy of the site's files, the namespace."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from packaging.version import Version

from hvd.core import paths, stamp
from hvd.host import machine
from hvd.model import environment as environments
from hvd.model import site as sites
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.rehearse import module_tools, namespace, stand_ins
from hvd.rehearse.declared import Declared
from hvd.rehearse.inside import Plan, ibrun
from hvd.rehearse.stand_ins import StandIn
from hvd.solve import kept, repo_index, site_check

#: What Spack would build for Horovod before 0.28.1, and whose library is not on the Python index.
_UNFETCHED = "py-cffi"


def prepare(
    chosen: Environment,
    found: List[Declared],
    scratch: pathlib.Path,
    shown: Dict[str, str],
    log: pathlib.Path,
) -> Tuple[str, Dict[str, str], List[str]]:
    """Make all that the steps need; return the root spec, variables and the command for them.

    Args:
        found: what the site declares.
        shown: gets what each stand-in is.

    Raises:
        Lacking: there is no stand-in for something.
    """
    # first what takes no time and may be lacking
    gpu = stand_ins.on_gpus(chosen, found)
    cpu = not gpu and any(chosen.root.variants.get(name) for name in ("cuda", "rocm"))
    frameworks = stand_ins.frameworks(found, gpu)
    python = next(each for each in found if each.package == "python")
    own = [
        each
        for each in found
        if each.prefix == python.prefix or each.package in stand_ins.FRAMEWORKS
    ]
    made = [
        stand_ins.make(each, scratch / "stand-ins", log)
        for each in found
        if each not in own and (gpu or each.package not in _GPU)
    ]
    shown.update({each.declared: each.what for each in made})
    what = f"a venv of Python {frameworks.version} with {', '.join(frameworks.requirements)}"
    shown[", ".join(map(str, own))] = what
    mpi = next(each for each in found if each.package in stand_ins.MPIS)
    _show_launchers(chosen, mpi.package, shown)
    spec = _copy(chosen, scratch / "tree", cpu, shown)
    modules = _modulefiles(chosen, found, made, scratch / "modules")
    login = [module_tools.install("lmod").init, f"module use {modules}"]
    # Cray's is loaded from the beginning
    login += [f"module load {mpi.module}"] if mpi.package == "cray-mpich" else []
    # the stand-in of a framework brings its Python
    theirs = any(each.modules for each in found if each.package in stand_ins.FRAMEWORKS)
    plan = Plan(
        environment=chosen.name,
        login=login,
        mpi=mpi.package,
        python=frameworks.python,
        prefix=python.prefix,
        requirements=_requirements(chosen, found, frameworks.requirements),
        brought={
            program: each.prefix
            for program, each in (("mpicxx", mpi), ("python3", python))
            if each.modules and (each is mpi or not theirs)
        },
        directory=str(scratch),
        pair=pinned().pairs[0].name,
        cpu=cpu,
    )
    (scratch / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
    places = _places(own, made, spec, scratch, shown)
    return spec, _variables(scratch), _command(plan, places, scratch)


def _show_launchers(chosen: Environment, mpi: str, shown: Dict[str, str]) -> None:
    """Note in ``shown`` what starts jobs in place of what the site has."""
    site = sites.of(chosen.name)
    partition = site.partitions[site.environments[chosen.name].partition]
    if partition.gpus and site.scheduler == "slurm":
        shown["Slurm's options for GPUs"] = "left out: Slurm has no GPUs here"
    if partition.pin:
        shown["taskset, numactl"] = "scripts that start the program on any core"
    if site.launcher == "ibrun":
        shown["ibrun"] = f"a script that starts {ibrun(mpi).split()[0]}"
    if _unfetched(chosen):
        shown[_UNFETCHED] = "a wheel: the Python index has no source of libffi"


def _places(
    own: Sequence[Declared],
    made: Sequence[StandIn],
    spec: str,
    scratch: pathlib.Path,
    shown: Dict[str, str],
) -> Dict[str, Optional[pathlib.Path]]:
    """Return what is seen where; ``own`` is in the environment of the frameworks."""
    # this machine's own CUDA would be found by CMake and PyTorch
    cuda = [*map(str, pathlib.Path("/usr/local").glob("cuda*")), shutil.which("nvcc")]
    places: Dict[str, Optional[pathlib.Path]] = dict.fromkeys(filter(None, cuda))
    for each in made:
        places.update(each.places)
    places.update({each.prefix: scratch / "made" for each in own})
    hosts = scratch / "hosts"
    names = f"127.0.0.1 n1 n2 {socket.gethostname()}\n"
    hosts.write_text(pathlib.Path("/etc/hosts").read_text() + names)
    system = site_check.architecture(spec)["os"]
    shown[f"os={system}"] = "this machine's, which says that it is that"
    if machine.foreign():
        name = machine.describe().get("root", "a root")
        shown[machine.foreign()] = f"QEMU, in {name}; compilers and ./hvd run natively"
        shown["Open MPI's network"] = "TCP by libfabric, as QEMU cannot do that of Open MPI itself"
    release = _os_release(system, scratch / "os-release")
    return {**places, "/etc/hosts": hosts, "/etc/os-release": release}


def _variables(scratch: pathlib.Path) -> Dict[str, str]:
    """Return the variables of the steps."""
    variables = {
        "HVD_STATE": str(scratch / "state"),
        paths.SITES_VARIABLE: str(scratch / "tree" / "environments"),
        "PYTHONPATH": str(paths.SOURCE),
    }
    if shutil.which("ccache"):
        variables["CCACHE_DIR"] = str(paths.cache() / "ccache")
    return variables


def _command(
    plan: Plan, places: Mapping[str, Optional[pathlib.Path]], scratch: pathlib.Path
) -> List[str]:
    """Return the command that takes the steps of ``plan`` in the namespace."""
    # what Spack found out about a compiler, by its path: at that path is another one here
    found_out = repo_index.directory(plan.pair) / "compilers"
    for each in (found_out, scratch / "compilers"):
        each.mkdir(exist_ok=True)
    command = [*namespace.words(places), "--bind", str(scratch / "compilers"), str(found_out)]
    command += ["--", sys.executable, "-m", "hvd.rehearse.inside"]
    return [*command, str(scratch / "plan.json")]


#: What is used by a Horovod for GPUs alone.
_GPU = ("cuda", "nccl", "hip", "rccl", "hsa-rocr-dev", "llvm-amdgpu", "libfabric", "rdma-core")


def _copy(chosen: Environment, tree: pathlib.Path, cpu: bool, shown: Dict[str, str]) -> str:
    """Copy all environments and sites, with the changes that this machine needs.

    Args:
        cpu: whether the environment is for GPUs, and is to be built for CPUs.

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
    if cpu:
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


def _requirements(
    chosen: Environment, found: List[Declared], frameworks: Sequence[str]
) -> List[str]:
    """Return what the environment of the frameworks gets; ``found`` is what the site declares."""
    others = [
        f"{each.package[len('py-') :]}=={each.version}"
        for each in found
        if each.package.startswith("py-") and each.package not in stand_ins.FRAMEWORKS
    ]
    wheels = [_UNFETCHED[len("py-") :]] if _unfetched(chosen) else []
    return [*frameworks, *_beside(chosen, found), *others, *wheels]


def _unfetched(chosen: Environment) -> bool:
    """Return whether Spack would build on the site what it cannot build here."""
    packages = kept.load(chosen).packages
    return any(each.name == _UNFETCHED and each.origin == "built" for each in packages)


def _beside(chosen: Environment, found: List[Declared]) -> List[str]:
    """Return what the page installs beside the frameworks; conda and modules bring NumPy."""
    make = sites.of(chosen.name).environments[chosen.name].make
    if make is None or "pytorch=" in " ".join(make.commands):
        # https://github.com/pytorch/pytorch/releases/tag/v2.3.0: the first for NumPy 2
        torch = [Version(each.version) for each in found if each.package == "py-torch"]
        return ["numpy<2" if any(each < Version("2.3") for each in torch) else "numpy"]
    commands = [text.partition(" --index-url")[0] for text in make.commands]
    words = [word for text in commands for word in shlex.split(text.partition("pip install ")[2])]
    conda = " ".join(text for text in commands if "conda create" in text)
    words += [f"{name}=={version}.*" for name, version in re.findall(r" (\w+)=([\d.]+)", conda)]
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
