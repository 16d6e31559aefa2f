"""The steps of a rehearsal, run in the mount namespace: ``python -m tests.rehearsal.steps PLAN``.

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
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from jupyter_client.manager import run_kernel

from hvd.core import paths, process, stamp
from hvd.core.errors import HvdError
from hvd.host import machine
from hvd.model import built, check_build, environment, solution
from hvd.model import site as sites
from hvd.model.site import Use
from hvd.smoke import launch
from hvd.solve import kept
from tests import debian_root
from tests.checkout import script
from tests.services import cluster

#: The frameworks' modules of Horovod.
_MODULES = {**check_build.PLUGINS, "keras": "tensorflow"}
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
PASSED, FAILED, NOT_SHOWN = "passed", "failed", "not shown"


class NotShown(Exception):
    """A step that cannot be taken here."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    name: str
    result: str  #: one of the three above
    seconds: float
    why: str = ""  #: where it did not pass


@dataclasses.dataclass
class Rehearsal:
    """The steps of an environment, and what they need in their namespace."""

    environment: str
    login: List[str]  #: lines of bash that every shell begins with, such as Lmod's
    mpi: str  #: package
    python: str  #: interpreter to make the frameworks' environment with
    prefix: str  #: of that environment
    requirements: List[str]  #: of the frameworks
    brought: Dict[str, str]  #: programs that the page's modules bring, and their prefixes
    directory: str  #: for results and logs
    pair: str
    cpu: bool  #: the environment is for GPUs, and is built for CPUs nevertheless
    built: List[str] = dataclasses.field(default_factory=list)  #: by Spack, as ``name@version``

    @property
    def log(self) -> pathlib.Path:
        return pathlib.Path(self.directory, "log")

    @property
    def path(self) -> str:
        """PATH of a user who has logged in."""
        return debian_root.FOREIGN_PATH if machine.foreign() else os.defpath

    @property
    def use(self) -> Use:
        return sites.of(self.environment).environments[self.environment]

    @property
    def loads(self) -> List[str]:
        return [f"module load {shlex.join(load)}" for load in self.use.build]

    @property
    def imports(self) -> List[str]:
        names = environment.load(self.environment).frameworks
        return sorted({_MODULES[name] for name in names if name in _MODULES})

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
        """Run lines of bash as a user who has logged in; return what they print."""
        text = "\n".join([*self.login, "set -e", *lines])
        keep = ("HOME", "LANG", "USER", "XDG_CACHE_HOME", "CCACHE_DIR", "TERM", "LOGNAME")
        starts = ("HVD_", "PIP_", "SSL_", "http", "no_proxy", "GIT_")
        clean = {k: v for k, v in os.environ.items() if k in keep or k.startswith(starts)}
        clean.update({"PATH": self.path, "LMOD_PAGER": "", **variables})
        command = ["bash", "--noprofile", "--norc", "-c", text]
        return process.run(command, log=self.log, env=clean, timeout=timeout).output

    def hvd(self, *words: str) -> str:
        return shlex.join([str(paths.ROOT / "hvd"), *words])

    def make(self) -> None:
        """Make the environment of the frameworks, with venv and pip for conda."""
        python = f"{self.prefix}/bin/python"
        done = pathlib.Path(self.prefix, "stamp")
        digest = stamp.of(self.python, self.requirements)
        if not stamp.matches(done, digest):
            pip = [python, "-m", "pip", "install", "--progress-bar=off", "--no-cache-dir"]
            self.shell(
                shlex.join([self.python, "-m", "venv", "--clear", self.prefix]),
                shlex.join([*pip, *self.requirements]),
                timeout=3600,
            )
            stamp.put(done, digest)
        self.shell(self.hvd("externals", self.environment, "--python", python))
        if self.cpu:
            # the wheel may be one for CUDA, which Horovod does not use
            file = environment.load(self.environment).externals
            file.write_text(re.sub(r"\+cuda( cuda_arch=[\d,]+)?", "~cuda", file.read_text()))

    def modules(self) -> None:
        """Load the page's modules; they have to bring what Spack takes from modules."""
        for program, prefix in self.brought.items():
            said = self.shell(*self.loads, f"command -v {program} || true").splitlines()
            found = said[-1] if said else "none"
            if not found.startswith(f"{prefix}/"):
                raise HvdError(
                    f"the modules that site.yaml loads bring {found} for {program}, and "
                    f"packages.yaml has it below {prefix}"
                )
        self.shell(*self.loads, "module list")

    def build(self) -> None:
        words = ["build", self.environment, "--engine", "spack", "--fresh"]
        words += ["--pair", self.pair]
        self.shell(*self.loads, self.hvd(*words), timeout=_BUILD)
        lock = environment.load(self.environment).lockfile
        self.built = kept.built(kept.packages(solution.read(lock.read_text(), lock.name)))

    def check_build(self) -> None:
        file = built.activation(self.environment, "spack") / "activate.sh"
        # it loads the modules itself
        activation = [self.hvd("activate", self.environment), f". {shlex.quote(str(file))}"]
        self._compare(self.shell(*activation, *_CHECK_BUILD))

    def _compare(self, text: str) -> None:
        expected = built.find(self.environment, "spack").expectation
        wrong = check_build.differences(text, expected)
        if wrong:
            raise HvdError("; ".join(wrong))

    def batch(self) -> None:
        """Submit the script of ``./hvd launch --batch``, for each framework."""
        site = sites.of(self.environment)
        partition = site.partitions[self.use.partition]
        if site.scheduler != "slurm":
            raise NotShown(f"{site.scheduler} is not here")
        pmi = _PMI.get(self.mpi, "none")
        feature = partition.slurm.constraint or "none"
        changes = {
            "CR_Core": f"CR_Core\nSlurmdParameters=config_overrides\nMpiDefault={pmi}",
            f"CPUs={cluster.CPUS}": f"CPUs=512 RealMemory=4000000 Feature={feature}",
            "PartitionName=compute": f"PartitionName={partition.slurm.partition or 'compute'}",
        }
        with tempfile.TemporaryDirectory(prefix="slurm-") as short:
            with cluster.running(pathlib.Path(short, "of"), changes) as slurm:
                # TACC's, and what binds to the site's cores and memory
                script(slurm.directory / "bin" / "ibrun", f"exec {ibrun(self.mpi)}")
                for name in ("numactl", "taskset"):
                    script(slurm.directory / "bin" / name, 'shift 2; exec "$@"')
                account = [f"--account=x{partition.account.suffix}"]
                for framework in self.imports:
                    self._job(slurm, framework, account if partition.account.needed else [])

    def _job(self, slurm: cluster.Cluster, framework: str, account: List[str]) -> None:
        output, job = (slurm.directory / "home" / name for name in ("output", "job.sh"))
        words = ["launch", self.environment, "--batch", "--nodes=2", "--ranks-per-node=1"]
        words += ["--time=0:05:00", f"--output={output}", *account]
        said = self.shell(
            f"{self.hvd(*words, '--', 'python', str(_PROGRAM), framework)} > {job}",
            # no GPU is here, so that Slurm has none to give
            rf"sed -i -E '/^#SBATCH --{_GPUS}/d; /^srun /s/ --{_GPUS}\S+//g' {job}",
            f"cat {job}",
            f"sbatch --parsable {job}",
            PATH=f"{slurm.directory / 'bin'}:{self.path}",
            **launch.small_machine(),
            **(_EMULATED if machine.foreign() else {}),
        )
        found = slurm.ended(said.strip().splitlines()[-1], _JOB)
        printed = output.read_text() if output.exists() else ""
        with open(self.log, "a") as sink:
            sink.write(printed)
        right = rf"rank (\d) of 2: allreduce with {framework} is right"
        if found["JobState"] != "COMPLETED" or sorted(re.findall(right, printed)) != ["0", "1"]:
            last = printed.strip().splitlines()[-1:] or ["it prints nothing"]
            raise HvdError(f"the job of {framework} ends as {found['JobState']}: {last[0]}")

    def publish(self) -> None:
        """Publish the module, and use it in a shell that knows nothing of Spack."""
        root = pathlib.Path(self.directory, "published")
        shutil.rmtree(root, ignore_errors=True)
        words = ["publish", self.environment, "--root", str(root), "--tool", "lmod"]
        self.shell(self.hvd(*words))
        files = list((root / "lmod").resolve().rglob("*.lua"))
        (file,) = [each for each in files if not each.name.startswith(".")]
        text = self.shell(
            f"module use {shlex.quote(str(file.parents[1]))}",
            f"module load {file.parent.name}/{file.stem}",
            # a process each: the NCCL of the one that is loaded first would be that of the other
            *[f"python -c 'import horovod.{name}'" for name in self.imports],
            *_CHECK_BUILD,
        )
        self._compare(text)

    def kernel(self) -> None:
        """Install a kernel as the page says, and let it import Horovod."""
        prefix = f"{self.directory}/jupyter"
        self.shell(
            f"{self.prefix}/bin/python -m pip install --progress-bar=off ipykernel",
            self.hvd("kernel", self.environment, "--prefix", prefix, "--name", "rehearsed"),
        )
        os.environ["JUPYTER_PATH"] = f"{prefix}/share/jupyter"
        # which JupyterHub gets from a login shell
        variables = [line.partition("=") for line in self.shell("env").splitlines()]
        os.environ.update({k: v for k, _, v in variables if k.startswith(("LMOD_", "MODULE"))})
        printed: List[str] = []
        with open(self.log, "a") as sink:
            kernel = {"kernel_name": "rehearsed", "stdout": sink, "stderr": sink}
            with run_kernel(startup_timeout=120, **kernel) as client:
                reply = client.execute_interactive(
                    _CELL.format(self.imports[0]),
                    timeout=180,
                    output_hook=lambda message: printed.append(str(message["content"])),
                )
        expected = ["size 1", *(f":{module}:" for load in self.use.run for module in load)]
        missing = [each for each in expected if each not in "".join(printed)]
        if reply["content"]["status"] != "ok" or missing:
            raise HvdError(f"the kernel answers {printed}, {reply['content']}"[:500])


def ibrun(mpi: str) -> str:
    """Return the command in place of TACC's ibrun, which gets nodes and ranks from the job."""
    if mpi == "openmpi":
        return 'srun "$@"'
    return 'mpiexec.hydra -ppn $((SLURM_NTASKS / SLURM_NNODES)) -n $SLURM_NTASKS "$@"'


def take(steps: Sequence[Tuple[str, Callable[[], None]]]) -> Iterator[StepResult]:
    """Take the steps, and yield each result; after a failed build nothing is left to show."""
    missing = ""
    for name, function in steps:
        outcome, why, begin = (NOT_SHOWN, missing, time.monotonic())
        if not missing:
            outcome, why = PASSED, ""
            try:
                function()
            except NotShown as reason:
                outcome, why = NOT_SHOWN, str(reason)
            except HvdError as error:
                # the lines that say what is wrong, without where each log is
                lines = [line.strip() for line in error.tail.splitlines()]
                said = [each for each in lines if "Error" in each or re.match("error: [^`]", each)]
                outcome = FAILED
                why = "; ".join(said)[:_WHY] or error.message.splitlines()[-1]
        if outcome == FAILED and name in ("frameworks", "modules", "build"):
            missing = f"{name} failed"
        seconds = round(time.monotonic() - begin, 1)
        print(f"{name}: {outcome} {why} ({seconds} s)", flush=True)
        yield StepResult(name, outcome, seconds, why)


if __name__ == "__main__":
    rehearsal = Rehearsal(**json.loads(pathlib.Path(sys.argv[1]).read_text()))
    taken = [dataclasses.asdict(each) for each in take(rehearsal.steps())]
    done = json.dumps({"steps": taken, "built": rehearsal.built})
    pathlib.Path(rehearsal.directory, "steps.json").write_text(done)
