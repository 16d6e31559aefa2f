"""A login node with a real Slurm and a real Lmod, whose site ./hvd site new has written."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import tempfile
from typing import Iterator

from hvd.survey import check
from tests.build import module_tools
from tests.checkout import Checkout, copy_checkout
from tests.services import cluster
from tests.spack.conftest import stand_in

#: A cluster that counts memory, and gives a job little of it unasked.
MEMORY = {
    "CR_Core": "CR_Core_Memory\nDefMemPerCPU=50",
    "CPUs=2\n": "CPUs=2 RealMemory=1000\n",
}


class Moon:
    """A login node: a cluster, a module tree below ``top``, and a checkout."""

    def __init__(self, top: pathlib.Path, slurm: cluster.Cluster, checkout: Checkout) -> None:
        self.top, self.slurm, self.checkout = top, slurm, checkout
        python = stand_in(top / "torch")
        for program in ("mpirun", "mpicxx"):
            place = top / "openmpi" / "bin" / program
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(python.with_name(program), place)
        for name, prefix in (("openmpi/4.1.8", "openmpi"), ("torch/2.13.0", "torch")):
            self.module(name, prefix)
        lmod = module_tools.install("lmod")
        lines = f"module use {top / 'modules'}\n{module_tools.show('shell')}"
        shell = module_tools.environment(lmod.shell(lines), "shell")
        self.shell = {name: shell[name] for name in shell if name not in ("HOME", "PATH")}
        self.shell["PATH"] = slurm.variables["PATH"]

    def module(self, name: str, prefix: str) -> None:
        file = self.top / "modules" / f"{name}.lua"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'prepend_path("PATH", "{self.top / prefix / "bin"}")\n')

    def hvd(self, *words: object, status: int = 0) -> str:
        return self.checkout.hvd(*words, status=status, COLUMNS="250", **self.shell)

    def check(self, status: int) -> dict:
        """State and the rest of the line for each fact of `./hvd site check`."""
        output = self.hvd("site", "check", "moon", status=status)
        states = "|".join((check.SAME, check.MOVED, check.GONE, check.UNKNOWN))
        rows = re.findall(rf"^ ?(\S.*?)  +({states})  +(.*)$", output, re.MULTILINE)
        return {fact: (state, rest) for fact, state, rest in rows}


@contextlib.contextmanager
def made(scratch: pathlib.Path) -> Iterator[Moon]:
    """Start the cluster and write the site; files go to ``scratch``."""
    checkout = copy_checkout(scratch / "hvd")
    with tempfile.TemporaryDirectory(prefix="moon-") as short:
        with cluster.started(pathlib.Path(short, "of"), MEMORY) as slurm:
            moon = Moon(scratch / "apps", slurm, checkout)
            words = ["site", "new", "moon", "--center", "Tycho Computing Centre"]
            moon.hvd(*words, "--module", "openmpi", "--module", "torch/2.13.0")
            yield moon
