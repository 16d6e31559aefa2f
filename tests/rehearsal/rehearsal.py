"""Rehearse a site's environment on this machine, with stand-ins for what the site has."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from typing import Dict, List, Optional, Sequence, Tuple

import archspec.cpu
from packaging.version import Version

from hvd.core import paths, stamp
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.model import environment as environments
from hvd.model import site as sites
from hvd.model.environment import Environment
from hvd.model.versions import pinned
from hvd.solve import kept, repo_index, site_check
from tests import debian_root, declared, namespace
from tests.build import module_tools
from tests.declared import Declared
from tests.rehearsal import result, stand_ins
from tests.rehearsal.result import Result
from tests.rehearsal.stand_ins import Lacking, StandIn
from tests.rehearsal.steps import FAILED, NOT_SHOWN, Rehearsal, StepResult, ibrun
from tests.services import cluster

#: What is used by a Horovod for GPUs alone.
_GPU = ("cuda", "nccl", "hip", "rccl", "hsa-rocr-dev", "llvm-amdgpu", "libfabric", "rdma-core")
#: What Spack would build for Horovod before 0.28.1, and whose library is not on the Python index.
_UNFETCHED = "py-cffi"


def rehearse(name: str) -> Result:
    """Rehearse the environment called ``name``; files go to ``.hvd/rehearsals``.

    Raises:
        HvdError: it was interrupted.
    """
    chosen = environments.load(name)
    scratch = paths.state() / "rehearsals" / name
    (scratch / "made").mkdir(parents=True, exist_ok=True)
    for each in ("tree", "modules", "published", "jupyter", "compilers"):
        stamp.clear(scratch / each)
    log, steps_file = scratch / "log", scratch / "steps.json"
    for each in (log, steps_file):
        each.unlink(missing_ok=True)
    # outside of the namespace, and natively where programs are emulated
    module_tools.install("lmod")
    cluster.unpack()
    shown: Dict[str, str] = {}
    spec, built = chosen.specs[0], []
    try:
        found = declared.read(chosen)
        root = foreign_root(chosen, found)
        if not root:
            spec, command = _prepare(chosen, found, scratch, shown, log)
    except (HvdError, debian_root.RootError) as error:
        outcome = NOT_SHOWN if isinstance(error, Lacking) else FAILED
        steps = [StepResult("stand-ins", outcome, 0.0, str(error))]
    else:
        if root:
            return in_root(root, name)
        subprocess.run(command, check=False)
        if not steps_file.exists():
            raise HvdError("the rehearsal was interrupted", log=log)
        taken = json.loads(steps_file.read_text())
        steps, built = [StepResult(**step) for step in taken["steps"]], taken["built"]
    done = Result(
        environment=name,
        date=datetime.date.today().isoformat(),
        pair=pinned().pairs[0].name,
        files=result.digest(chosen),
        spec=spec,
        stand_ins=shown,
        steps=steps,
        log=stamp.of(log),
        built=built,
    )
    result.save(scratch / "result.json", done)
    if done.passed:
        # gigabytes; where it failed, the next rehearsal goes on from them
        for each in ("made", "stand-ins", "state", "tree"):
            stamp.clear(scratch / each)
    return done


def foreign_root(environment: Environment, found: List[Declared]) -> Optional[str]:
    """Return the name of a root for the environment's processor and Python; None if it is ours.

    Raises:
        Lacking: ``ci/versions.yaml`` has none.
        RootError: it cannot be made.
    """
    wanted = site_check.architecture(environment.specs[0])["target"]
    family = str(archspec.cpu.TARGETS[wanted].family)
    if family == str(archspec.cpu.TARGETS[machine.processor()].family):
        return None
    python = next(each.version for each in found if each.package == "python")
    series = ".".join(python.split(".")[:2])
    for name in debian_root.ROOTS:
        if debian_root.machine(name) == family:
            if (debian_root.make(name) / "usr" / "bin" / f"python{series}").exists():
                return name
    raise Lacking(f"no root for {family} in ci/versions.yaml has Python {series}")


def in_root(root: str, name: str) -> Result:
    """Let the same test rehearse the environment in a root, and return its result.

    Raises:
        HvdError: it was interrupted.
    """
    file = debian_root.state(root) / "rehearsals" / name / "result.json"
    file.unlink(missing_ok=True)
    test = f"{pathlib.Path(__file__).parent}/test_rehearsal.py::test_an_environment[{name}]"
    outside = [str(each) for each in paths.environments() if paths.ROOT not in each.parents]
    hvd = str(paths.ROOT / "hvd")
    debian_root.run(root, [hvd, "test", "-s", "--require=rehearsal", test], outside)
    if not file.exists():
        raise HvdError("the rehearsal was interrupted", log=file.with_name("log"))
    return result.load(file)


def _prepare(
    chosen: Environment,
    found: List[Declared],
    scratch: pathlib.Path,
    shown: Dict[str, str],
    log: pathlib.Path,
) -> Tuple[str, List[str]]:
    """Make all that the steps need; return the root spec, and the command that takes them.

    ``shown`` gets what each stand-in is.
    """
    gpu = stand_ins.has_nvcc(found) and chosen.root.variants.get("cuda") is True
    cpu = not gpu and any(chosen.root.variants.get(name) for name in ("cuda", "rocm"))
    interpreter, version, frameworks = stand_ins.frameworks(found, gpu)
    python = next(each for each in found if each.package == "python")
    # in the environment of the frameworks
    theirs = [each for each in found if each.package in stand_ins.FRAMEWORKS]
    own = [each for each in found if each.prefix == python.prefix or each in theirs]
    others = [each for each in found if each not in own and (gpu or each.package not in _GPU)]
    made = [stand_ins.make(each, scratch / "stand-ins", log) for each in others]
    shown.update({each.declared: each.what for each in made})
    shown[", ".join(map(str, own))] = f"a venv of Python {version} with {', '.join(frameworks)}"
    mpi = next(each for each in found if each.package in stand_ins.MPIS)
    unfetched = any(
        each.name == _UNFETCHED and each.origin == "built" for each in kept.load(chosen).packages
    )
    site = sites.of(chosen.name)
    partition = site.partitions[site.environments[chosen.name].partition]
    if partition.gpus and site.scheduler == "slurm":
        shown["Slurm's options for GPUs"] = "left out: Slurm has no GPUs here"
    if partition.pin:
        shown["taskset, numactl"] = "scripts that start the program on any core"
    if site.launcher == "ibrun":
        shown["ibrun"] = f"a script that starts {ibrun(mpi.package).split()[0]}"
    if unfetched:
        shown[_UNFETCHED] = "a wheel: the Python index has no source of libffi"
    spec = _copy(chosen, scratch / "tree", cpu, shown)
    modules = _modulefiles(chosen, found, made, scratch / "modules")
    login = [module_tools.install("lmod").init, f"module use {modules}"]
    # Cray's is loaded from the beginning
    login += [f"module load {mpi.module}"] if mpi.package == "cray-mpich" else []
    rehearsal = Rehearsal(
        environment=chosen.name,
        login=login,
        mpi=mpi.package,
        python=interpreter,
        prefix=python.prefix,
        requirements=[*frameworks, *_beside(chosen, found), *(["cffi"] if unfetched else [])],
        brought={
            program: each.prefix
            for program, each in (("mpicxx", mpi), ("python3", python))
            # the module of a framework brings its Python
            if each.modules and (each is mpi or not any(it.modules for it in theirs))
        },
        directory=str(scratch),
        pair=pinned().pairs[0].name,
        cpu=cpu,
    )
    (scratch / "plan.json").write_text(json.dumps(dataclasses.asdict(rehearsal)))
    # this machine's own CUDA would be found by CMake and PyTorch
    cuda = [*map(str, pathlib.Path("/usr/local").glob("cuda*")), shutil.which("nvcc")]
    places: Dict[str, Optional[pathlib.Path]] = dict.fromkeys(filter(None, cuda))
    for each in made:
        places.update(each.places)
    places.update({each.prefix: scratch / "made" for each in own})
    places.update(_system(site_check.architecture(spec)["os"], scratch, shown))
    # what Spack found out about a compiler, by its path: at that path is another one here
    found_out = repo_index.directory(rehearsal.pair) / "compilers"
    for each in (found_out, scratch / "compilers"):
        each.mkdir(exist_ok=True)
    command = [*namespace.words(places), "--bind", str(scratch / "compilers"), str(found_out)]
    variables = {
        "HVD_STATE": scratch / "state",
        paths.SITES_VARIABLE: scratch / "tree" / "environments",
        "PYTHONPATH": paths.SOURCE,
        "CCACHE_DIR": paths.cache() / "ccache",
    }
    for name, value in variables.items():
        command += ["--setenv", name, str(value)]
    command += ["--chdir", str(paths.ROOT), "--", sys.executable, "-m", "tests.rehearsal.steps"]
    return spec, [*command, str(scratch / "plan.json")]


def _system(
    system: str, scratch: pathlib.Path, shown: Dict[str, str]
) -> Dict[str, Optional[pathlib.Path]]:
    """Return files that name the operating system, which Spack builds for, and the nodes."""
    name, version = re.fullmatch(r"([a-z]+)([\d.]+)", system).groups()
    (scratch / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\n')
    shown[f"os={system}"] = "this machine's, which says that it is that"
    if machine.foreign():
        root = machine.describe().get("root", "a root")
        shown[machine.foreign()] = f"QEMU, in {root}; compilers and ./hvd run natively"
        shown["Open MPI's network"] = "TCP by libfabric, as QEMU cannot do that of Open MPI itself"
    names = f"127.0.0.1 n1 n2 {socket.gethostname()}\n"
    (scratch / "hosts").write_text(pathlib.Path("/etc/hosts").read_text() + names)
    return {"/etc/hosts": scratch / "hosts", "/etc/os-release": scratch / "os-release"}


def _copy(chosen: Environment, tree: pathlib.Path, cpu: bool, shown: Dict[str, str]) -> str:
    """Copy all environments and sites with the changes for this machine; return the root spec."""
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
    spec, spec_file = chosen.specs[0], copied / chosen.name / "spack.yaml"
    hardware = [*copied.glob("hardware/*/packages.yaml")]
    site = copied / environments.SITES / chosen.site / "packages.yaml"
    changes = [(f"  - {other}\n", "", [spec_file]) for other in chosen.specs[1:]]
    for other in chosen.specs[1:]:
        shown[other.split()[0]] = "left out: the Python index has no source of it"
    wanted = site_check.architecture(spec)["target"]
    target = stand_ins.target(wanted)
    if target != wanted:
        shown[f"target={wanted}"] = f"target={target}"
        changes.append((f"target={wanted}", f"target={target}", [spec_file, *hardware]))
    if cpu:
        shown["GPUs"] = "the same spec for CPUs"
        # the variant nccl is there with one for a GPU alone
        for old, new in (("+nccl", ""), ("+cuda", "~cuda"), ("+rocm", "~rocm")):
            changes.append((old, new, [spec_file, site]))
    for old, new, files in changes:
        for file in files:
            file.write_text(file.read_text().replace(old, new))
        spec = spec.replace(old, new)
    return spec


def _beside(chosen: Environment, found: List[Declared]) -> List[str]:
    """Return what is installed beside the frameworks: what the site declares, what its page says.

    Conda and modules bring NumPy.
    """
    declared = [
        f"{each.package[len('py-') :]}=={each.version}"
        for each in found
        if each.package.startswith("py-") and each.package not in stand_ins.FRAMEWORKS
    ]
    make = sites.of(chosen.name).environments[chosen.name].make
    if make is None or "pytorch=" in " ".join(make.commands):
        # https://github.com/pytorch/pytorch/releases/tag/v2.3.0: the first for NumPy 2
        torch = [Version(each.version) for each in found if each.package == "py-torch"]
        return ["numpy<2" if any(v < Version("2.3") for v in torch) else "numpy", *declared]
    commands = [text.partition(" --index-url")[0] for text in make.commands]
    words = [word for text in commands for word in shlex.split(text.partition("pip install ")[2])]
    conda = " ".join(text for text in commands if "conda create" in text)
    words += [f"{name}=={version}.*" for name, version in re.findall(r" (\w+)=([\d.]+)", conda)]
    left = ("torch", "tensorflow", "python")
    return [*(word for word in words if not word.startswith(left)), *declared]


def _modulefiles(
    chosen: Environment, found: Sequence[Declared], made: Sequence[StandIn], top: pathlib.Path
) -> pathlib.Path:
    """Write a modulefile for each module of the site; those of externals bring their prefixes."""
    modules = site_check.modules(sites.of(chosen.name))
    texts = dict.fromkeys(modules, 'whatis("a stand-in")\n')
    variables = {each.declared: each.variables for each in made}
    for each in found:
        if each.module:
            settings = variables.get(str(each), {})
            prefix = settings.get("I_MPI_ROOT", each.prefix)
            lines = [f'prepend_path("PATH", "{prefix}/bin")']
            lines += [f'prepend_path("LD_LIBRARY_PATH", "{prefix}/lib:{prefix}/lib/libfabric")']
            lines += [f'setenv("{name}", "{value}")' for name, value in settings.items()]
            texts[each.module] += "".join(f"{line}\n" for line in lines)
    for name, text in texts.items():
        file = top / f"{name}.lua"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return top
