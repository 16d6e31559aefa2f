"""The checks that ``./hvd check`` has ReFrame run: what was built, and sums of two ranks.

Features of environments and of partitions decide what runs where; see `systems`.  Programs,
records and verdicts are those of the smoke test.
"""

import functools
import pathlib
import shlex
import time

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError

from hvd.core.errors import HvdError
from hvd.launch import batch, methods, request
from hvd.model import built, check_build
from hvd.reframe import systems
from hvd.smoke import launch, records
from hvd.smoke.run import bandwidth

#: Minutes that a job may take, and seconds after which a rank that hangs says where.
_MINUTES = 10
_LIMIT = 50 * _MINUTES


class _OnSite(rfm.RunOnlyRegressionTest):
    """A check of a built environment on nodes of its site."""

    #: Whose build: ``spack``, ``pip`` or ``auto``.
    engine = variable(str, value="auto")
    valid_systems = ["*"]
    time_limit = f"{_MINUTES}m"
    maintainers = ["hvd"]

    def use(self, *program, nodes=1, ranks_per_node=1, variables=None, gloo=False):
        """Prepare the job that runs ``program``, and return the launch.

        The check is skipped if the site refuses it.
        """
        where = {"partition": self.current_partition.name, "nodes": nodes}
        more = {"program": program, "variables": variables or {}}
        if gloo:
            more.update(gloo=True, method=systems.GLOO)
        try:
            wanted = request.make(
                self.current_environ.name, ranks_per_node=ranks_per_node, **where, **more
            )
            request.check(wanted)
        except HvdError as error:
            self.skip(f"{error.message}; {error.remedy}")
        kind, scheduler = wanted.partition, wanted.site.scheduler
        self.num_tasks = wanted.ranks
        self.num_tasks_per_node = wanted.ranks_per_node
        if scheduler in ("slurm", "pbs"):
            self.num_cpus_per_task = kind.cpus_per_rank or None
        if kind.slurm.gpus:
            self.extra_resources = {"gpu": {"count": min(wanted.ranks_per_node, kind.gpus)}}
        own = launch.small_machine() if scheduler == "none" else {}
        engine = self.engine if self.is_dry_run() else self.subject.engine
        engine = built.ENGINES[0] if engine == "auto" else engine
        activation = built.activation(self.current_environ.name, engine) / "activate.sh"
        self.prerun_cmds = [
            f". {shlex.quote(str(activation))}",
            # last, as activate.sh was written for some number of nodes
            *batch.site_exports(wanted),
            *batch.exports({**own, **methods.prefix(wanted)}),
        ]
        self.executable, *self.executable_opts = map(shlex.quote, wanted.program)
        return wanted

    @functools.cached_property
    def subject(self):
        """The record of the build."""
        return built.find(self.current_environ.name, self.engine)


@rfm.simple_test
class CheckBuild(_OnSite):
    descr = "horovodrun --check-build on a node says what was asked for"
    valid_prog_environs = ["+horovod"]
    tags = {"check-build"}

    @run_after("setup")
    def prepare(self):
        self.use("horovodrun", "--check-build", "--verbose")

    @run_before("run")
    def start_without_a_launcher(self):
        self.job.launcher = rfm.core.backends.getlauncher("local")()

    @sanity_function
    def is_what_was_asked_for(self):
        text = (pathlib.Path(self.stagedir) / self.job.stdout).read_text()
        return _verdict(check_build.differences(text, self.subject.expectation))


@rfm.simple_test
class Allreduce(_OnSite):
    descr = "two ranks: every operation is right; bandwidth and latency of a sum"
    framework = parameter(check_build.PLUGINS)
    operations = parameter(systems.OPERATIONS)
    nodes = parameter((1, 2))
    #: Fewer and smaller sizes, whose bandwidth says little and is not judged.
    quick = variable(bool, value=False)
    tags = {"allreduce"}

    @property
    def on_gpus(self):
        return self.operations in systems.ON_GPUS

    @run_after("init")
    def choose(self):
        controller = f"+{self.controller}"
        self.valid_prog_environs = [f"{controller} +{self.framework} +{self.operations}"]
        if self.operations == "gloo":
            self.valid_systems = [f"+{systems.GLOO}"] if self.nodes == 1 else []
            return
        wanted = ["+gpu"] * self.on_gpus + ["+several-nodes"] * (self.nodes > 1)
        self.valid_systems = [" ".join(wanted)] if wanted else ["*"]

    @run_after("setup")
    def prepare(self):
        program = [
            *("python", str(launch.PROGRAM)),
            *("--framework", check_build.PLUGINS[self.framework], "--controller", self.controller),
            *("--ranks", "2", "--out", str(self.records), "--limit", str(_LIMIT)),
        ]
        program += ["--quick"] * self.quick + ["--device=gpu"] * self.on_gpus
        settings = launch.horovod_settings(self.controller, self.on_cpus, 60 * _MINUTES)
        wanted = self.use(
            *program,
            nodes=self.nodes,
            ranks_per_node=2 // self.nodes,
            variables=settings,
            gloo=self.controller == "gloo",
        )
        self.prerun_cmds += [f"mkdir {shlex.quote(str(self.records))}"]
        self.postrun_cmds = ["status=$?", f"echo $status > {self.status.name}", "exit $status"]
        self.job.launcher.request = wanted
        least = wanted.use.least_bandwidth(self.operations, self.nodes)
        if least and not self.quick:
            where = self.current_partition.fullname
            self.reference = {where: {"bus_bandwidth": (least.bus_mb_s, 0, None, "MB/s")}}

    @property
    def on_cpus(self):
        """The library of operations on CPUs; empty for the controller's own."""
        return "" if self.on_gpus else self.operations

    @property
    def controller(self):
        """Horovod's controller; no other carries operations over Gloo."""
        return "gloo" if self.operations == "gloo" else "mpi"

    @property
    def status(self):
        """The file with the launcher's exit status, which not every scheduler tells."""
        return pathlib.Path(self.stagedir) / "status"

    @property
    def records(self):
        """The directory in which ranks record what they do."""
        return pathlib.Path(self.stagedir) / "ranks"

    @sanity_function
    def every_result_is_right(self):
        method = self.job.launcher.request.method
        # a job that was killed has not written it
        status = int(self.status.read_text()) if self.status.is_file() else None
        ended = launch.Launch(
            launcher=launch.Launcher(
                *(method, method, (), self.controller, self.on_cpus),
                device="gpu" if self.on_gpus else "cpu",
            ),
            executable=method,
            mpirun=method if self.controller == "mpi" else None,
            ranks=2,
            status=status,
            seconds=(self.job.completion_time or time.time()) - self.job.submit_time,
            log=pathlib.Path(self.stagedir) / self.job.stderr,
        )
        return _verdict(records.failures(ended, records.read(self.records)))

    @run_before("performance")
    def measure(self):
        if self.is_dry_run():
            return
        rows = [r for r in bandwidth(records.read(self.records)) if r["method"] == "horovod"]
        rows.sort(key=lambda row: row["bytes"])
        figures = {
            "bus_bandwidth": (rows[-1]["bus_mb_s"], "MB/s"),
            "latency": (rows[0]["seconds"] * 1e6, "us"),
        }
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit)
            for name, (value, unit) in figures.items()
        }


def _verdict(failures):
    """Return True if there are none, and raise SanityError with them otherwise."""
    if failures:
        raise SanityError("\n  ".join(failures))
    return True
