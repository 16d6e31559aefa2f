"""The checks of ``./hvd doctor``: each looks at one thing of a `Subject`."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Callable, Dict, Iterable, List, Mapping, Tuple

from hvd.core import paths, process
from hvd.core.check import Check, State
from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.doctor.gather import TIMEOUT, Subject
from hvd.host import externals
from hvd.model import environment, solution
from hvd.model.built import find
from hvd.smoke.launch import Target
from hvd.smoke.program import MPI_LIBRARIES
from hvd.smoke.run import check_build_items
from hvd.solve import site_check

ok, warn, fail, unknown = State
#: State, detail, and a remedy if it is not ok.
Result = Tuple[str, ...]
#: Libraries of which another copy is known to break something.
_TELLING = re.compile(
    r"lib(crypto|ssl|stdc\+\+|gcc_s|mpi\w*|nccl|cudart|fabric|ucp|python\S*)\.so"
)
_ON_A_GPU_NODE = "ask on a node with a GPU"


def examine(name: str, engine: str, shell: Mapping[str, str]) -> List[Check]:
    """Return what each check finds of the environment ``name``; without a build, that of one.

    Args:
        shell: the environment that the command was called in.
    """
    chosen = environment.load(name)
    try:
        subject = Subject(find(name, engine), shell)
    except HvdError as error:
        remedy = error.remedy
        try:
            if chosen.lockfile.exists():
                text = chosen.lockfile.read_text()
                site_check.require_here(chosen, solution.read(text, chosen.lockfile.name))
        except HvdError as lacking:  # what this machine lacks to build a site's environment
            remedy = f"{lacking.message}; {lacking.remedy}"
        return [Check("build", fail, error.message, remedy)]
    process.adopt_orphans()
    return examine_built(subject)


def examine_built(subject: Subject) -> List[Check]:
    """Return what each check finds that is for builds such as this one."""
    expected = subject.built.expectation
    parts = {*expected.controllers, *expected.operations, subject.built.gpu, ""}
    return [Check(*key[:1], *check(subject)) for key, check in CHECKS.items() if key[1] in parts]


def _build(subject: Subject) -> Result:
    changed = subject.built.changed()
    if changed:
        more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
        return warn, f"older than {', '.join(changed[:2])}{more}", subject.built.again
    return ok, f"{subject.built.name} is up to date"


def _import(subject: Subject) -> Result:
    errors = subject.imported["errors"]
    broken = [f"{name}: {error}" for name, error in errors.items() if error]
    if broken:
        return fail, "; ".join(broken), subject.built.again
    return ok, ", ".join(errors)


def _check_build(subject: Subject) -> Result:
    expected = subject.built.expectation
    logs = paths.state() / "logs" / subject.built.name / "doctor"
    target = Target(subject.python, subject.after)
    failures = check_build_items(target, expected, logs, TIMEOUT).failures
    if failures:
        return fail, "; ".join(failures), f"{subject.built.again} --fresh"
    items = sorted(expected.frameworks | expected.controllers | expected.operations)
    return ok, f"{expected.version}: {', '.join(items)}"


def _mpi_linked(subject: Subject) -> Result:
    """The environment's ``mpirun`` is of the MPI that Horovod is linked with."""
    libraries, again = subject.library(*MPI_LIBRARIES), f"{subject.built.again} --fresh"
    if not libraries:
        return fail, "Horovod has loaded no MPI library", again
    if len(libraries) > 1:
        found = f"two MPI libraries in one process: {', '.join(libraries)}"
        return fail, found, "build all of it against one MPI"
    launcher = subject.launcher(subject.own)
    if not launcher[0]:
        found = f"{libraries[0]}; the environment has no mpirun"
        return warn, found, "start ranks with the site's launcher"
    problem = _mismatch(subject, launcher)
    return (fail, problem, again) if problem else (ok, f"{libraries[0]}, with {launcher[0]}")


def _mpi_in_path(subject: Subject) -> Result:
    """The ``mpirun`` of the calling shell is of that MPI, too."""
    launcher = subject.launcher(subject.shell)
    if not launcher[0]:
        if subject.active:
            return warn, "this shell has no mpirun", _activate(subject)
        return ok, "this shell has no mpirun, and is not activated"
    problem = _mismatch(subject, launcher)
    if problem and subject.active:
        return fail, problem, "take it out of PATH, or unload its module"
    return (warn, problem, _activate(subject)) if problem else (ok, launcher[0])


def _mismatch(subject: Subject, launcher: Tuple[str, str]) -> str:
    """How a launcher differs from the MPI that Horovod has loaded; empty if it does not."""
    (path, version), (known, library) = launcher, subject.mpi
    if known and version:
        text = f"{path} is {version}, and Horovod is linked with {known}: {library}"
        return "" if known == version else text
    # not every MPI says what it is: compare places
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    return (
        "" if library.startswith(f"{prefix}/") else f"{path} belongs to another MPI than {library}"
    )


def _nccl(subject: Subject) -> Result:
    """NCCL is linked shared, and there is one copy of it."""
    if subject.built.nccl_link == "static":
        found = "linked static: neither the site's NCCL nor a network plugin can replace it"
        return warn, found, "build it with nccl_link=shared"
    name = "librccl.so" if subject.built.gpu == "rocm" else "libnccl.so"
    files = subject.library(name)
    if len(files) > 1:
        found = f"two in one process: {', '.join(files)}"
        return fail, found, "build Horovod with the framework's own NCCL"
    if not files:
        return fail, f"{name} is not loaded", "load the module that has it"
    return ok, files[0]


def _cuda(subject: Subject) -> Result:
    """The driver is new enough for the toolkit; Horovod and its framework are for the GPUs."""
    driver, built = subject.gpus.driver, subject.built.architectures
    toolkit, framework = _framework(subject)
    found = f"Horovod for {' '.join(built) or 'no architecture that is named'}"
    found += f", framework for {' '.join(framework)} with CUDA {toolkit}" if toolkit else ""
    here = sorted(set(subject.gpus.capabilities))
    if not driver or not here:
        return unknown, f"{found}; {subject.gpus.reason or 'no GPU'}", _ON_A_GPU_NODE
    found += f"; here {' '.join(here)}, driver for CUDA {'.'.join(map(str, driver))}"
    wants = tuple(map(int, f"{toolkit or 0}.0".split(".")[:2]))
    if driver < wants:
        # https://docs.nvidia.com/deploy/cuda-compatibility: kernels compiled as they load fail
        state = warn if driver[0] == wants[0] else fail
        return state, found, "a newer driver, or an older toolkit"
    missing = [each for each in here if built and not _runs_on(each, built)]
    if missing:
        return fail, found, f"build it with cuda_arch={','.join(missing).replace('.', '')}"
    if framework and not all(_runs_on(each, framework) for each in here):
        return fail, found, "take a framework that is built for this GPU"
    return (ok, found) if built else (unknown, found, "name them: cuda_arch=80")


def _framework(subject: Subject) -> Tuple[str, List[str]]:
    """Return CUDA version and GPU architectures of the framework; empty if it does not say."""
    try:
        asked = externals.ask(subject.python, subject.after)["frameworks"].values()
    except (HvdError, subprocess.SubprocessError):
        return "", []
    for each in asked:
        if each.get("cuda") and "architectures" in each:
            return each["cuda"].replace("unknown", ""), each["architectures"]
    return "", []


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


def _site(subject: Subject) -> Result:
    """The variables that the site's network needs are set, as its modules and activation do."""
    site, _ = activation.place(subject.built)
    nodes = subject.shell.get("SLURM_JOB_NUM_NODES", "")
    count = int(nodes) if nodes.isdigit() else 2
    fabric = site.variables(subject.built.case, count) if site else {}
    missing = [name for name in fabric if name not in subject.shell]
    other = [
        f"{name}={subject.shell[name]}, the site's is {value}"
        for name, value in fabric.items()
        if subject.shell.get(name, value) != value
    ]
    if missing:
        # on a login node, without the environment, nothing needs them
        needed = subject.active or {"SLURM_JOB_ID", "LSB_JOBID"} & set(subject.shell)
        return fail if needed else warn, f"not set: {', '.join(missing)}", _activate(subject)
    if other:
        return warn, "; ".join(other), _activate(subject)
    return ok, ", ".join(fabric) or "none are needed"


def _library_path(subject: Subject) -> Result:
    """The shell's LD_LIBRARY_PATH hides no library."""
    if not subject.shell.get("LD_LIBRARY_PATH", "").strip(":") or not subject.shadowed:
        return ok, "hides none of the libraries that are needed"
    telling = [name for name in subject.shadowed if _TELLING.match(name)]
    pairs = [subject.shadowed[name] for name in sorted(telling or subject.shadowed)[:2]]
    found = "; ".join(f"{place} hides {hidden}" for hidden, place in pairs)
    more = len(subject.shadowed) - len(pairs)
    directories = sorted({os.path.dirname(place) for _, place in subject.shadowed.values()})
    remedy = f"take out of LD_LIBRARY_PATH: {':'.join(directories)}"
    return fail if telling else warn, found + (f", and {more} more" if more else ""), remedy


def _activate(subject: Subject) -> str:
    return f"./hvd activate {subject.built.environment}, and source activate.sh"


#: Name, and what a build has to have for it; and the check.
CHECKS: Dict[Tuple[str, str], Callable[[Subject], Result]] = {
    ("build", ""): _build,
    ("import", ""): _import,
    ("check-build", ""): _check_build,
    ("MPI linked", "mpi"): _mpi_linked,
    ("MPI in PATH", "mpi"): _mpi_in_path,
    ("NCCL", "nccl"): _nccl,
    ("CUDA", "cuda"): _cuda,
    ("fabric variables", ""): _site,
    ("LD_LIBRARY_PATH", ""): _library_path,
}
