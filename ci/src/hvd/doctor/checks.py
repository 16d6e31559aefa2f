"""The checks: each a function of the facts."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from typing import Callable, Iterable, List, Tuple

from hvd.doctor.gather import MPI_LIBRARIES, Facts, Launcher
from hvd.model.versions import pinned


class State(str, enum.Enum):
    """How a check ended; what cannot be looked at is not known, which is not ok."""

    ok = "ok"
    warn = "warn"
    fail = "fail"
    unknown = "not known"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The finding of a check."""

    check: str
    state: State
    finding: str  #: a sentence without a full stop
    remedy: str = ""  #: if it is not ok


ok, warn, fail, unknown = State
#: State, finding, and a remedy if it is not ok.
Result = Tuple[str, ...]

#: Libraries of which another copy is known to break something.
_TELLING = re.compile(
    r"lib(crypto|ssl|stdc\+\+|gcc_s|mpi\w*|nccl|cudart|fabric|ucp|python\S*)\.so"
)
_ON_A_GPU_NODE = "ask on a node with a GPU"

#: Name; MPI, NCCL or CUDA, if the check is only for builds with it; and the check.
CHECKS: List[Tuple[str, str, Callable[[Facts], Result]]] = []


def examine(facts: Facts) -> List[Finding]:
    """Return what each check finds; without a build, that of the first one alone."""
    return [
        Finding(name, *(_left_out(facts, only) or check(facts)))
        for name, only, check in (CHECKS if facts.built else CHECKS[:1])
    ]


def _left_out(facts: Facts, only: str) -> Result:
    """Return what is found by a check for builds with ``only``, if this is none; else nothing."""
    if not only:
        return ()
    expected = facts.built.expectation
    parts = expected.controllers | expected.operations | {facts.built.gpu}
    if only == "CUDA" and "rocm" in parts:
        return unknown, "built for ROCm, whose driver is not looked at"
    return () if only.lower() in parts else (ok, f"built without {only}")


def _check(name: str, only: str = "") -> Callable:
    def add(check: Callable[[Facts], Result]) -> None:
        CHECKS.append((name, only, check))

    return add


@_check("build")
def _build(facts: Facts) -> Result:
    if facts.built is None:
        return fail, facts.not_built, facts.remedy
    if facts.changed:
        more = f" and {len(facts.changed) - 2} more" if len(facts.changed) > 2 else ""
        return warn, f"older than {', '.join(facts.changed[:2])}{more}", _rebuild(facts)
    return ok, f"{facts.built.name}, of the files as they are"


@_check("Spack and packages")
def _pair(facts: Facts) -> Result:
    """Spack and its packages are a pair that was tested, at the pinned commits."""
    spack = facts.spack
    if spack is None:
        return ok, "built by pip, without Spack"
    known = {pair.name: pair for pair in pinned().pairs}.get(spack.pair)
    setup = "./hvd setup; --pair and --spack choose another"
    if not spack.pair:
        return unknown, "it is not recorded which Spack built it", setup
    if known is None:
        return fail, f"{spack.pair} is no supported pair", pinned().choices()
    if not spack.version:
        found = f"the Spack that built it is gone: {spack.root}; the build works without"
        return warn, found, setup
    if spack.version != known.spack.version:
        found = f"Spack at {spack.root} is {spack.version}, and {known.name} has"
        return fail, f"{found} {known.spack.version}", setup
    for name, pin in (("packages", known.packages), ("spack", known.spack)):
        commit = spack.commits.get(name, "")
        if commit and commit != pin.commit:
            return warn, f"{name} at commit {commit[:12]}, tested was {pin.commit[:12]}", setup
    return ok, f"{known.name}: Spack {known.spack.version}, packages {known.packages.version}"


@_check("import")
def _import(facts: Facts) -> Result:
    broken = [f"horovod.{name}: {error}" for name, error in facts.imports.items() if error]
    if broken:
        return fail, "; ".join(broken), _rebuild(facts)
    if not facts.imports:
        return unknown, "there is no framework to import it for"
    return ok, ", ".join(f"horovod.{name}" for name in facts.imports)


@_check("check-build")
def _check_build(facts: Facts) -> Result:
    if facts.check_build:
        return fail, "; ".join(facts.check_build), f"{_rebuild(facts)} --fresh"
    expected = facts.built.expectation
    items = sorted(expected.frameworks | expected.controllers | expected.operations)
    return ok, f"{expected.version}: {', '.join(items)}"


@_check("MPI linked", only="MPI")
def _mpi_linked(facts: Facts) -> Result:
    """The environment's ``mpirun`` is of the MPI that Horovod is linked with."""
    libraries = facts.library(*MPI_LIBRARIES)
    if not libraries:
        return fail, "Horovod has loaded no MPI library", f"{_rebuild(facts)} --fresh"
    if len(set(map(os.path.realpath, libraries))) > 1:
        found = f"two MPI libraries in one process: {', '.join(libraries)}"
        return fail, found, "build all of it against one MPI"
    if facts.launcher is None:
        found = f"{_mpi(facts)}; the environment has no mpirun"
        return warn, found, "start ranks with the site's launcher"
    problem = _mismatch(facts, facts.launcher)
    if problem:
        return fail, problem, f"{_rebuild(facts)} --fresh"
    return ok, f"{_mpi(facts)}, with {facts.launcher.path}"


@_check("MPI in PATH", only="MPI")
def _mpi_in_path(facts: Facts) -> Result:
    """The ``mpirun`` of the calling shell is of that MPI, too."""
    launcher = facts.shell_launcher
    if not facts.library(*MPI_LIBRARIES):
        return unknown, "no MPI library to compare it with", "see MPI linked"
    if launcher is None and facts.active:
        return warn, "this shell has no mpirun", _activate(facts)
    if launcher is None:
        return ok, "this shell has no mpirun, and is not activated"
    problem = _mismatch(facts, launcher)
    if problem and facts.active:
        return fail, problem, "take it out of PATH, or unload its module"
    if problem:
        return warn, problem, _activate(facts)
    return ok, launcher.path


@_check("MPI compiler", only="MPI")
def _mpi_compiler(facts: Facts) -> Result:
    """The compiler that MPI's wrapper calls is there."""
    if facts.compiler is None:
        return unknown, "no mpicxx in the environment says what it calls"
    program, there = facts.compiler
    if there:
        return ok, f"mpicxx calls {program}"
    remedy = "load its module, or choose another: OMPI_CXX, MPICH_CXX or I_MPI_CXX=g++"
    return warn, f"mpicxx calls {program}, which is not on PATH", remedy


@_check("MPI transport", only="MPI")
def _mpi_transport(facts: Facts) -> Result:
    """Open MPI can use the adapter that is there; it chooses by itself unless it is told."""
    asked = facts.shell.get("OMPI_MCA_pml", "")
    fast = sorted(facts.transports & {"pml ucx", "mtl ofi", "mtl psm2"})
    adapters = ", ".join(facts.adapters)
    if "openmpi" not in facts.mpi:
        return ok, f"{facts.mpi or 'this MPI'} is not Open MPI, and is not looked at"
    if not facts.transports:
        return unknown, "no ompi_info in the environment says what Open MPI has"
    if adapters and not fast:
        remedy = "use an Open MPI with UCX: openmpi fabrics=ucx"
        return warn, f"{adapters} is there, and Open MPI has TCP alone", remedy
    if adapters and asked == "ob1":
        remedy = "unset OMPI_MCA_pml"
        return warn, f"{adapters} is there, and OMPI_MCA_pml=ob1 goes over TCP", remedy
    if asked:
        return ok, f"OMPI_MCA_pml={asked}"
    return ok, f"Open MPI has {', '.join(fast) or 'TCP alone'}; {adapters or 'no adapter'} is here"


@_check("NCCL", only="NCCL")
def _nccl(facts: Facts) -> Result:
    """NCCL is linked shared, and there is one copy of it."""
    name = "librccl.so" if facts.built.gpu == "rocm" else "libnccl.so"
    if name == "libnccl.so":
        if not facts.needed:
            return unknown, "none of Horovod's libraries could be read"
        if not any(each.startswith(("nccl", name)) for each in facts.needed):
            state = warn if facts.built.nccl_link == "static" else fail
            found = "linked static: neither the site's NCCL nor a network plugin can replace it"
            return state, found, "build it with nccl_link=shared"
    files = sorted(set(map(os.path.realpath, facts.library(name))))
    if not files:
        return fail, f"{name} is not loaded", "load the module that has it"
    if len(files) > 1:
        found = f"two in one process: {', '.join(files)}"
        return fail, found, "build Horovod with the framework's own NCCL"
    return ok, f"shared: {files[0]}"


@_check("CUDA driver", only="CUDA")
def _driver(facts: Facts) -> Result:
    """The driver is new enough for the toolkit."""
    has = facts.gpus.driver
    if has is None:
        return unknown, facts.gpus.reason, _ON_A_GPU_NODE
    found = f"supports CUDA {'.'.join(map(str, has))}"
    if not facts.toolkit:
        return unknown, f"{found}; which CUDA it was built with is not known"
    found += f", built with {facts.toolkit}"
    wants = tuple(map(int, f"{facts.toolkit}.0".split(".")[:2]))
    if has >= wants:
        return ok, found
    if has[0] == wants[0]:
        remedy = "a newer driver, or a toolkit of its version: kernels compiled as they load fail"
        return warn, found, remedy
    return fail, found, "a newer driver, or build with an older toolkit"


@_check("GPU architectures", only="CUDA")
def _architectures(facts: Facts) -> Result:
    """Horovod and its framework were built for the GPUs of this machine."""
    built = facts.built.architectures
    found = f"Horovod: {' '.join(built) or 'none named'}"
    if facts.architectures:
        found += f"; framework: {' '.join(facts.architectures)}"
    here = sorted(set(facts.gpus.capabilities))
    if not here:
        found += f"; {facts.gpus.reason or 'the driver shows no GPU'}"
        return unknown, found, _ON_A_GPU_NODE
    found += f"; here: {' '.join(here).replace('.', '')}"
    missing = [each for each in here if built and not _runs_on(each, built)]
    if missing:
        return fail, found, f"build it with cuda_arch={','.join(missing).replace('.', '')}"
    if facts.architectures and not all(_runs_on(each, facts.architectures) for each in here):
        return fail, found, "take a framework that is built for this GPU"
    if not built:
        return unknown, found, "name them: cuda_arch=80"
    return ok, found


@_check("fabric variables")
def _fabric(facts: Facts) -> Result:
    """The variables that the site's network needs are set."""
    missing = [name for name in facts.fabric if name not in facts.shell]
    other = [
        f"{name}={facts.shell[name]}, the site's is {value}"
        for name, value in facts.fabric.items()
        if facts.shell.get(name, value) != value
    ]
    if missing:
        # on a login node, without the environment, nothing needs them
        needed = facts.active or {"SLURM_JOB_ID", "LSB_JOBID"} & set(facts.shell)
        return fail if needed else warn, f"not set: {', '.join(missing)}", _activate(facts)
    if other:
        return warn, "; ".join(other), _activate(facts)
    return ok, ", ".join(facts.fabric) or "none are needed"


@_check("LD_LIBRARY_PATH")
def _shadowing(facts: Facts) -> Result:
    """The shell's LD_LIBRARY_PATH puts no other libraries in the way."""
    if not facts.shell.get("LD_LIBRARY_PATH", "").strip(":"):
        return ok, "not set in this shell"
    if not facts.shadowed:
        return ok, "hides none of the libraries that are needed"
    telling = [name for name in facts.shadowed if _TELLING.match(name)]
    shown = sorted(telling or facts.shadowed)[:2]
    texts = [f"{facts.shadowed[name][1]} hides {facts.shadowed[name][0]}" for name in shown]
    more = f", and {len(facts.shadowed) - 2} more" if len(facts.shadowed) > 2 else ""
    directories = sorted({os.path.dirname(path) for _, path in facts.shadowed.values()})
    remedy = f"take out of LD_LIBRARY_PATH: {':'.join(directories)}"
    return fail if telling else warn, "; ".join(texts) + more, remedy


def _rebuild(facts: Facts) -> str:
    engine = facts.built.engine if facts.built else "auto"
    return f"./hvd build {facts.name} --engine {engine}"


def _activate(facts: Facts) -> str:
    return f"./hvd activate {facts.name}, and source activate.sh"


def _mpi(facts: Facts) -> str:
    """The MPI that Horovod has loaded."""
    path = facts.library(*MPI_LIBRARIES)[0]
    return f"{facts.mpi}: {path}" if facts.mpi else path


def _mismatch(facts: Facts, launcher: Launcher) -> str:
    """How ``launcher`` differs from the library; empty if it does not."""
    if facts.mpi and launcher.version:
        if facts.mpi == launcher.version:
            return ""
        return f"{launcher.path} is {launcher.version}, and Horovod is linked with {_mpi(facts)}"
    # not every MPI says what it is: compare places
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(launcher.path)))
    library = os.path.realpath(facts.library(*MPI_LIBRARIES)[0])
    if library.startswith(f"{prefix}/"):
        return ""
    return f"{launcher.path} belongs to another MPI than {_mpi(facts)}"


def _runs_on(capability: str, built: Iterable[str]) -> bool:
    """True if code for one of ``built`` runs: same major version, no later minor one.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    major, minor = capability.split(".")
    for each in built:
        digits = each.rstrip("af")
        lettered = digits != each
        if digits[:-1] == major and (digits[-1] == minor or (digits[-1] < minor and not lettered)):
            return True
    return False
