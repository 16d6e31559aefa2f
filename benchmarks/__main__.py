"""Measure a part and make the page from all results: see README.md."""

import argparse
import importlib
import sys

from benchmarks import page
from hvd.core import process


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*page.PARTS, []], help="none: only the page")
    parser.add_argument("--repeat", type=int, default=1, help="of builds and solves")
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    args = parser.parse_args()
    process.adopt_orphans()
    for part in args.parts:
        page.save(part, *importlib.import_module(f"benchmarks.{part}").measure(args.repeat))
    stale = page.write(args.check)
    print(*stale, sep="\n")
    sys.exit(bool(args.check and stale))


if __name__ == "__main__":
    main()
