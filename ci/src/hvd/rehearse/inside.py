"""The steps of a rehearsal, run in the mount namespace: ``python -m hvd.rehearse.inside PLAN``.

Each step types what the site's page has its users type, in a shell of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import cattrs

from hvd.core import console, paths, process, stamp
from hvd.core.errors import HvdError
from hvd.core.steps import Step
from hvd.host import emulation, machine
from hvd.model import built, check_build, environment, solution
from hvd.model import site as sites
from hvd.model.site import Partition, Site
from hvd.rehearse import cluster
from hvd.rehearse.result import FAILED, NOT_SHOWN, PASSED, StepResult
from hvd.smoke import launch
from hvd.solve import kept

#: The frameworks' modules of Horovod.
_MODULES = {"pytorch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow"}
#: Seconds for a build, and for a job of two ranks.
_BUILD, _JOB = 7200.0, 300.0
#: Characters of what is wrong that a result keeps.
_WHY = 400
#: Slurm's plugin for the processes of an MPI.
_PMI = {"openmpi": "pmix", "cray-mpich": "pmi2", "mpich": "pmi2"}
_PROGRAM = paths.PACKAGES / "py_horovod" / "test" / "allreduce.py"
#: Under QEMU 10, setsockopt(SO_RCVTIMEO) fails, and the TCP of Open MPI 5 hangs; libfabric does
#: not use it.
_EMULATED = {
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "tcp",
}
#: How Slurm's options for GPUs begin, for sed.
_GPUS = "(gpu|gres|mem-per-gpu)"
#: As at a terminal: before 0.25, horovodrun loses what it has not flushed.
_CHECK_BUILD = ("export PYTHONUNBUFFERED=1", "horovodrun --check-build --verbose")
#: What a kernel is asked to do.
_CELL = """\
import os, horovod.{0} as hvd
hvd.init()
print(f"size {{hvd.size()}}, :{{os.environ.get('LOADEDMODULES')}}:")
"""


class NotShown(Exception):
    """A step that cannot be taken here."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The needs of a rehearsal in its namespace.

    Args:
        environment: its name.
        login: lines of bash that every shell begins with, such as Lmod's.
        mpi: package of the MPI.
        python: interpreter to make the frameworks' environment with.
        prefix: the environment's place.
        requirements: of the frameworks.
        brought: programs that the page's modules bring, to the prefixes that they are in.
        directory: for results and logs.
        cpu: whether the environment is for GPUs, and is built for CPUs nevertheless.
    """

    environment: str
    login: List[str]
    mpi: str
    python: str
    prefix: str
    requirements: List[str]
    brought: Dict[str, str]
    directory: str
    pair: str
    cpu: bool


@dataclasses.dataclass
class Rehearsal:
    """The steps of one environment."""

    plan: Plan
    log: pathlib.Path
    job_variables: Mapping[str, str] = dataclasses.field(default_factory=launch.small_machine)
    built: List[str] = dataclasses.field(default_factory=list)  #: packages, as ``name@version``

    @property
    def site(self) -> Site:
        return sites.of(self.plan.environment)

    @property
    def partition(self) -> Partition:
        site = self.site
        return site.partitions[site.environments[self.plan.environment].partition]

    def steps(self) -> Sequence[Tuple[str, Callable[[], None]]]:
        """Name and function of each step, in order."""
        return (
            ("frameworks", self.make),
            ("modules", self.modules),
            ("build", self.build),
            ("check-build", self.check_build),
            ("batch job", self.batch),
            ("published module", self.publish),
            ("Jupyter kernel", self.kernel),
        )

    def shell(self, *lines: str, timeout: float = 600, **variables: str) -> str:
        """Run lines of bash as a user who has logged in; return what they print.

        Raises:
            HvdError: one of them fails.
        """
        text = "\n".join([*self.plan.login, "set -e", *lines])
        keep = ("HOME", "LANG", "USER", "XDG_CACHE_HOME", "CCACHE_DIR", "TERM", "LOGNAME")
        clean = {
            name: value
            for name, value in os.environ.items()
            if name in keep
            or name.startswith(("HVD_", "PIP_", "SSL_", "http", "no_proxy", "GIT_"))
        }
        clean.update({"PATH": self.path, "LMOD_PAGER": "", **variables})
        command = ["bash", "--noprofile", "--norc", "-c", text]
        return process.run(command, log=self.log, env=clean, timeout=timeout).output

    @property
    def path(self) -> str:
        """PATH of a user who has logged in."""
        return emulation.path() if machine.foreign() else os.defpath

    def hvd(self, *words: str) -> str:
        return shlex.join([str(paths.ROOT / "hvd"), *words])

    @property
    def loads(self) -> List[str]:
        use = self.site.environments[self.plan.environment]
        return [f"module load {shlex.join(load)}" for load in use.build]

    @property
    def activation(self) -> List[str]:
        setup = shlex.quote(str(paths.state() / "setup-env.sh"))
        return [f". {setup}", environment.activation(self.plan.environment)]

    @property
    def imports(self) -> List[str]:
        names = environment.load(self.plan.environment).frameworks
        return sorted({_MODULES[name] for name in names if name in _MODULES})

    def make(self) -> None:
        """Make the environment of the frameworks, with venv and pip for conda."""
        python = f"{self.plan.prefix}/bin/python"
        done = pathlib.Path(self.plan.prefix, "stamp")
        digest = stamp.of(self.plan.python, self.plan.requirements)
        if not stamp.matches(done, digest):
            self._install(python)
            stamp.put(done, digest)
        self.shell(self.hvd("externals", self.plan.environment, "--python", python))
        if self.plan.cpu:
            # the wheel may be one for CUDA, which Horovod does not use
            file = environment.load(self.plan.environment).externals
            file.write_text(re.sub(r"\+cuda( cuda_arch=[\d,]+)?", "~cuda", file.read_text()))

    def _install(self, python: str) -> None:
        self.shell(
            shlex.join([self.plan.python, "-m", "venv", "--clear", self.plan.prefix]),
            shlex.join(
                [python, "-m", "pip", "install", "--progress-bar=off", "--no-cache-dir"]
                + self.plan.requirements
            ),
            timeout=3600,
        )

    def modules(self) -> None:
        """Load the page's modules; they have to bring what Spack takes from modules."""
        for program, prefix in self.plan.brought.items():
            said = self.shell(*self.loads, f"command -v {program} || true").splitlines()
            found = said[-1] if said else "none"
            if not found.startswith(f"{prefix}/"):
                raise HvdError(
                    f"the modules that site.yaml loads bring {found} for {program}, and "
                    f"packages.yaml has it below {prefix}"
                )
        self.shell(*self.loads, "module list")

    def build(self) -> None:
        words = ["build", self.plan.environment, "--engine", "spack", "--fresh"]
        words += ["--pair", self.plan.pair]
        self.shell(*self.loads, self.hvd(*words), timeout=_BUILD)
        lock = environment.load(self.plan.environment).lockfile
        self.built = kept.built(kept.packages(solution.read(lock.read_text(), lock.name)))

    def check_build(self) -> None:
        self._compare(self.shell(*self.loads, *self.activation, *_CHECK_BUILD))

    def _compare(self, text: str) -> None:
        expected = built.find(self.plan.environment, "spack").expectation
        try:
            wrong = check_build.differences(check_build.parse(text), expected)
        except check_build.CheckBuildError as error:
            wrong = [str(error)]
        if wrong:
            raise HvdError("; ".join(wrong))

    def batch(self) -> None:
        """Submit the script of ``./hvd launch --batch``, for each framework."""
        if self.site.scheduler != "slurm":
            raise NotShown(f"{self.site.scheduler} is not here")
        with tempfile.TemporaryDirectory(prefix="slurm-") as short:
            with cluster.started(pathlib.Path(short, "of"), self._changes()) as slurm:
                self._stand_in_launchers(slurm.directory / "bin")
                for name in self.imports:
                    self._job(slurm, name)

    def _job(self, slurm: cluster.Cluster, framework: str) -> None:
        output, job = (slurm.directory / "home" / name for name in ("output", "job.sh"))
        words = ["launch", self.plan.environment, "--batch", "--nodes=2", "--ranks-per-node=1"]
        words += ["--time=0:05:00", f"--output={output}"]
        account = self.partition.account
        words += [f"--account=x{account.suffix}"] if account.needed else []
        words += ["--", "python", str(_PROGRAM), framework]
        path = f"{slurm.directory / 'bin'}:{self.path}"
        said = self.shell(
            f"{self.hvd(*words)} > {job}",
            # no GPU is here, so that Slurm has none to give
            rf"sed -i -E '/^#SBATCH --{_GPUS}/d; /^srun /s/ --{_GPUS}\S+//g' {job}",
            f"cat {job}",
            f"sbatch --parsable {job}",
            PATH=path,
            **self.job_variables,
            **(_EMULATED if machine.foreign() else {}),
        )
        found = slurm.ended(said.strip().splitlines()[-1], _JOB)
        printed = output.read_text() if output.exists() else ""
        with open(self.log, "a") as sink:
            sink.write(printed)
        ranks = sorted(
            re.findall(rf"rank (\d) of 2: allreduce with {framework} is right", printed)
        )
        if found["JobState"] != "COMPLETED" or ranks != ["0", "1"]:
            last = printed.strip().splitlines()[-1:] or ["it prints nothing"]
            raise HvdError(f"the job of {framework} ends as {found['JobState']}: {last[0]}")

    def _changes(self) -> Dict[str, str]:
        """Words of Slurm's configuration, for what the site's scripts ask for."""
        kind = self.partition
        node = f"CPUs=512 RealMemory=4000000 Feature={kind.slurm.constraint or 'none'}"
        selects = "CR_Core\nSlurmdParameters=config_overrides"
        selects += f"\nMpiDefault={_PMI.get(self.plan.mpi, 'none')}"
        return {
            "CR_Core": selects,
            f"CPUs={cluster.CPUS}": node,
            "PartitionName=compute": f"PartitionName={kind.slurm.partition or 'compute'}",
        }

    def _stand_in_launchers(self, programs: pathlib.Path) -> None:
        """Write TACC's ibrun, and what binds to the site's cores and memory."""
        cluster.script(programs / "ibrun", f"exec {ibrun(self.plan.mpi)}")
        for name in ("numactl", "taskset"):
            cluster.script(programs / name, 'shift 2; exec "$@"')

    def publish(self) -> None:
        """Publish the module, and use it in a shell that knows nothing of Spack."""
        root = pathlib.Path(self.plan.directory, "published")
        shutil.rmtree(root, ignore_errors=True)
        words = ["publish", self.plan.environment, "--root", str(root), "--tool", "lmod"]
        self.shell(self.hvd(*words))
        files = list((root / "lmod").resolve().rglob("*.lua"))
        (file,) = [each for each in files if not each.name.startswith(".")]
        # a process each: the NCCL of the one that is loaded first would be that of the other
        imports = [f"python -c 'import horovod.{name}'" for name in self.imports]
        text = self.shell(
            f"module use {shlex.quote(str(file.parents[1]))}",
            f"module load {file.parent.name}/{file.stem}",
            *imports,
            *_CHECK_BUILD,
        )
        self._compare(text)

    def kernel(self) -> None:
        """Install a kernel as the page says, and let it import Horovod."""
        from jupyter_client.manager import KernelManager

        prefix = f"{self.plan.directory}/jupyter"
        self.shell(
            f"{self.plan.prefix}/bin/python -m pip install --progress-bar=off ipykernel",
            self.hvd("kernel", self.plan.environment, "--prefix", prefix, "--name", "rehearsed"),
        )
        os.environ["JUPYTER_PATH"] = f"{prefix}/share/jupyter"
        # which JupyterHub gets from a login shell
        variables = [line.partition("=") for line in self.shell("env").splitlines()]
        os.environ.update({k: v for k, _, v in variables if k.startswith(("LMOD_", "MODULE"))})
        # over a socket that is a file, not over TCP, where others could listen
        manager = KernelManager(kernel_name="rehearsed", transport="ipc")
        with open(self.log, "a") as sink:
            manager.start_kernel(stdout=sink, stderr=sink)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=120)
            printed: List[str] = []
            reply = client.execute_interactive(
                _CELL.format(self.imports[0]),
                timeout=180,
                output_hook=lambda message: printed.append(str(message["content"])),
            )
            use = self.site.environments[self.plan.environment]
            expected = ["size 1", *(f":{module}:" for load in use.run for module in load)]
            missing = [each for each in expected if each not in "".join(printed)]
            if reply["content"]["status"] != "ok" or missing:
                raise HvdError(f"the kernel answers {printed}, {reply['content']}"[:500])
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def ibrun(mpi: str) -> str:
    """Return the command in place of TACC's ibrun, which gets nodes and ranks from the job."""
    if mpi == "openmpi":
        return 'srun "$@"'
    return 'mpiexec.hydra -ppn $((SLURM_NTASKS / SLURM_NNODES)) -n $SLURM_NTASKS "$@"'


def run(rehearsal: Rehearsal) -> Iterator[StepResult]:
    """Take the steps, and yield the result of each."""
    missing = ""
    for name, function in rehearsal.steps():
        step, begin = Step(name), time.monotonic()
        outcome, why = NOT_SHOWN, missing
        with console.step(step):
            if not missing:
                outcome, why = _take(function)
            if outcome == FAILED:
                step.failed(why)
            elif outcome == NOT_SHOWN:
                step.skipped(why)
        if outcome == FAILED and name in ("frameworks", "modules", "build"):
            missing = f"{name} failed"
        yield StepResult(name, outcome, round(time.monotonic() - begin, 1), why)


def _take(function: Callable[[], None]) -> Tuple[str, str]:
    """Take a step; return how it ended, and why."""
    try:
        function()
    except NotShown as reason:
        return NOT_SHOWN, str(reason)
    except HvdError as error:
        # the lines that say what is wrong, without where each log is
        lines = [line.strip() for line in error.tail.splitlines()]
        said = [line for line in lines if "Error" in line or re.match("error: [^`]", line)]
        return FAILED, "; ".join(said)[:_WHY] or error.message.splitlines()[-1]
    return PASSED, ""


def main() -> None:
    file = pathlib.Path(sys.argv[1])
    plan = cattrs.structure(json.loads(file.read_text()), Plan)
    directory = pathlib.Path(plan.directory)
    rehearsal = Rehearsal(plan, directory / "log")
    steps = list(run(rehearsal))
    done = {"steps": cattrs.unstructure(steps), "built": rehearsal.built}
    (directory / "steps.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main()
