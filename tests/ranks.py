"""Ranks of a built Horovod: a program in which they sum, and how any program is run."""

from __future__ import annotations

import pathlib
import re
import subprocess
from typing import List, Tuple

from hvd.smoke.launch import LAUNCHERS, environment, find_program

#: Each rank prints who it is when the sum over all of them is right.
PROGRAM = """
import os, sys, torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(1000) * (hvd.rank() + 1), op=hvd.Sum)
wanted = hvd.size() * (hvd.size() + 1) / 2
assert torch.equal(total, torch.full((1000,), wanted)), total[:3]
node = os.environ.get("SLURMD_NODENAME", "here")
# at once: ranks share one pipe, and a line in parts may be split
text = f"rank {hvd.rank()} of {hvd.size()} on {node} uid {os.getuid()} by {sys.executable}\\n"
print(text, end="", flush=True)
hvd.shutdown()
"""


def said(output: str) -> List[Tuple[int, int]]:
    """Rank and number of ranks of each line that `PROGRAM` printed, in order."""
    found = re.findall(r"^rank (\d+) of (\d+) on ", output, re.MULTILINE)
    return sorted((int(rank), int(size)) for rank, size in found)


#: Launchers by name: one for each controller.
LAUNCHED = {each.name: each for each in LAUNCHERS if each.name in ("mpirun", "horovodrun --gloo")}


def ranks_of(
    built,
    launcher: str,
    program: str,
    folder: pathlib.Path,
    *options: str,
    ranks: int = 2,
    limit: float = 120.0,
    **variables: str,
) -> str:
    """Run a program on each rank of a build; return what all of them print.

    Args:
        built: the fixture ``built_horovod``.
        launcher: one of `LAUNCHED`.
        program: its text.
        folder: where it is put, and run.
        options: for the launcher.
        limit: seconds.

    Raises:
        AssertionError: it fails; has the output.
    """
    (folder / "job.py").write_text(program)
    target = built.target
    start = LAUNCHED[launcher]
    command = start.command(find_program(target, start.program), ranks)
    done = subprocess.run(
        [*command, *options, target.python, "-u", "job.py"],
        cwd=folder,
        env={**environment(start, target, limit), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
