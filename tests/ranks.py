"""A program in which ranks sum, and what they print."""

from __future__ import annotations

import re
from typing import List, Tuple

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
