"""Programs of parts (`parts`), run by the Python that has the built Horovod."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
from typing import Dict, List

from hvd.smoke.launch import Target


def names(program: pathlib.Path) -> List[str]:
    """The names of the parts: its functions with a decorator."""
    body = ast.parse(program.read_text()).body
    return [
        each.name for each in body if isinstance(each, ast.FunctionDef) and each.decorator_list
    ]


def run(
    target: Target,
    program: pathlib.Path,
    packages: pathlib.Path,
    directory: pathlib.Path,
    **variables: str,
) -> str:
    """Run the program with the packages in ``directory``; return what it prints.

    They are on PYTHONPATH, as what the program starts needs them too.
    """
    path = [target.environment.get("PYTHONPATH", ""), str(packages)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run(
        [target.python, program],
        env={**target.environment, **variables},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outcomes(output: str) -> Dict[str, str]:
    """Each part's trace, or nothing, from what `run` returns."""
    return dict(json.loads(line) for line in output.splitlines() if line.startswith('["'))
