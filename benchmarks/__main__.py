"""Measure parts, and make the page from all results: see README.md."""

import argparse
import sys

from benchmarks import page, spack
from benchmarks.collectives import collectives
from benchmarks.starts import starts
from hvd.core import process

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help="of builds, solves, collectives and starts")
    parser.add_argument("--repeat", type=int, default=1, help="how often to build and to solve")
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    args = parser.parse_args()
    process.adopt_orphans()
    known = {"builds": spack.builds, "solves": spack.solves}
    known.update(collectives=collectives, starts=starts)
    for part in args.parts:
        page.save(part, *known[part](args.repeat))
    stale = page.write(args.check)
    print(*stale, sep="\n", end="\n" * bool(stale))
    sys.exit(bool(args.check and stale))
