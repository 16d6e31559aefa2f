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


def outcomes(
    target: Target,
    program: pathlib.Path,
    packages: pathlib.Path,
    directory: pathlib.Path,
    **variables: str,
) -> Dict[str, str]:
    """Run the program with the packages in ``directory``; return each part's trace, or nothing.

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
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))
