"""Run by each rank: calls functions as it is asked to, and answers with what they return.

Usage: program.py MODULE.CLASS DIRECTORY RANK SIZE, with a class of `worlds` or `worlds_keras` and
a directory with two named pipes for each rank, ``RANK.calls`` and ``RANK.answers``.  Both have a
JSON value a line.  RANK and SIZE are empty where the launcher tells them.
"""

import importlib
import json
import sys
import traceback


def answer(world, line):
    module, name, arguments = json.loads(line)
    try:
        return {"value": getattr(importlib.import_module(module), name)(world, **arguments)}
    except Exception as error:
        return {
            "error": f"{type(error).__name__}: {error}",
            "trace": traceback.format_exc(),
        }


def main(kind, directory, rank, size):
    module, _, name = kind.partition(".")
    world = getattr(importlib.import_module(module), name)(rank, size)
    with open(f"{directory}/{world.rank}.calls") as calls:
        with open(f"{directory}/{world.rank}.answers", "w") as answers:
            for line in calls:
                print(json.dumps(answer(world, line)), file=answers, flush=True)
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:3], *[int(word) if word else None for word in sys.argv[3:5]])
