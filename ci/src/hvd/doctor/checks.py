"""The checks: each a function of the facts."""

from __future__ import annotations

from typing import Callable, List

from hvd.doctor import checks_gpu, checks_libraries
from hvd.doctor.model import Facts, Finding, State
from hvd.model import pins


def pair(facts: Facts) -> Finding:
    """Whether Spack and its packages are a pair that was tested, at the pinned commits."""
    check = "Spack and packages"
    if facts.spack is None:
        return Finding(check, State.ok, "built by pip, without Spack")
    spack = facts.spack
    known = {pair.name: pair for pair in pins.versions().pairs}.get(spack.pair)
    setup = "./hvd setup; --pair and --spack choose another"
    if not spack.pair:
        return Finding(check, State.unknown, "it is not recorded which Spack built it", setup)
    if known is None:
        found = f"{spack.pair} is no supported pair"
        return Finding(check, State.fail, found, pins.versions().choices())
    if not spack.version:
        found = f"the Spack that built it is gone: {spack.root}"
        return Finding(check, State.warn, f"{found}; what it built runs without", setup)
    if spack.version != known.spack.version:
        found = f"Spack at {spack.root} is {spack.version}, and {known.name} has"
        return Finding(check, State.fail, f"{found} {known.spack.version}", setup)
    for name, pin in (("packages", known.packages), ("spack", known.spack)):
        commit = spack.commits.get(name, "")
        if commit and commit != pin.commit:
            found = f"{name} at commit {commit[:12]}, tested was {pin.commit[:12]}"
            return Finding(check, State.warn, found, setup)
    versions = f"Spack {known.spack.version}, packages {known.packages.version}"
    return Finding(check, State.ok, f"{known.name}: {versions}")


def build(facts: Facts) -> Finding:
    """Whether it was built, of the files as they are now."""
    if facts.built is None:
        return Finding("build", State.fail, facts.not_built, facts.remedy)
    if facts.changed:
        more = f" and {len(facts.changed) - 2} more" if len(facts.changed) > 2 else ""
        found = f"older than {', '.join(facts.changed[:2])}{more}"
        return Finding("build", State.warn, found, _rebuild(facts))
    return Finding("build", State.ok, f"{facts.built.name}, of the files as they are")


def imports(facts: Facts) -> Finding:
    """Whether Horovod can be imported for each framework."""
    broken = [f"horovod.{name}: {error}" for name, error in facts.imports.items() if error]
    if broken:
        return Finding("import", State.fail, "; ".join(broken), _rebuild(facts))
    if not facts.imports:
        return Finding("import", State.unknown, "there is no framework to import it for")
    found = ", ".join(f"horovod.{name}" for name in facts.imports)
    return Finding("import", State.ok, found)


def check_build(facts: Facts) -> Finding:
    """Whether what was built is what was asked for."""
    if facts.check_build:
        found = "; ".join(facts.check_build)
        return Finding("check-build", State.fail, found, f"{_rebuild(facts)} --fresh")
    expected = facts.built.expectation
    items = sorted(expected.frameworks | expected.controllers | expected.operations)
    return Finding("check-build", State.ok, f"{expected.version}: {', '.join(items)}")


def fabric(facts: Facts) -> Finding:
    """Whether the variables that the site's network needs are set."""
    check = "fabric variables"
    if not facts.fabric:
        return Finding(check, State.ok, "none are needed")
    missing = [name for name in facts.fabric if name not in facts.shell]
    other = [
        f"{name}={facts.shell[name]}, the site's is {value}"
        for name, value in facts.fabric.items()
        if facts.shell.get(name, value) != value
    ]
    in_job = any(name in facts.shell for name in ("SLURM_JOB_ID", "LSB_JOBID"))
    if missing:
        # on a login node, out of the environment, nothing needs them
        state = State.fail if in_job or facts.active else State.warn
        return Finding(check, state, f"not set: {', '.join(missing)}", facts.activate)
    if other:
        return Finding(check, State.warn, "; ".join(other), facts.activate)
    return Finding(check, State.ok, ", ".join(facts.fabric))


def _rebuild(facts: Facts) -> str:
    engine = facts.built.engine if facts.built else "auto"
    return f"./hvd build {facts.name} --engine {engine}"


#: The checks, and whether there is nothing to look at without a build.
CHECKS: List[Callable[[Facts], Finding]] = [
    build,
    pair,
    imports,
    check_build,
    checks_libraries.mpi_linked,
    checks_libraries.mpi_in_path,
    checks_libraries.mpi_compiler,
    checks_libraries.nccl,
    checks_gpu.driver,
    checks_gpu.architectures,
    fabric,
    checks_libraries.shadowing,
]


def examine(facts: Facts) -> List[Finding]:
    """Everything that can be said; without a build that is one thing."""
    return [check(facts) for check in (CHECKS if facts.built else [build])]
