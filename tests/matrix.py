"""Cells and results of a support matrix that nobody tried."""

from __future__ import annotations

from typing import Any, List

from hvd.host import externals
from hvd.matrix import cells
from hvd.matrix.cells import Cell
from hvd.matrix.results import Result
from hvd.model import specs
from hvd.model.recipe import Recipe

#: Spack packages among a result's versions; the others are distributions, or people's names.
_PACKAGES = {"cmake", "cuda", "hip", "intel-mpi", "mpich", "nccl", "openmpi", "python"}
#: Variants that a distribution has in every cell, which decide whether the recipe refuses it.
_VARIANTS = {"mxnet": "+python", "tensorflow-cpu": "~cuda", "tensorflow-rocm": "+rocm"}


def result(cell: Cell, outcome: str = "passed", **fields: Any) -> Result:
    """The result of a cell, as if it was tried today."""
    matrix = cells.matrix()
    usual = {"spec": matrix.spec(cell), "inputs": matrix.inputs(cell), "date": "2026-01-31"}
    return Result(cell.id, outcome, **{**usual, **fields})


def refusals(recipe: Recipe, result: Result) -> List[str]:
    """What the recipe says against a result's spec and the versions that were used."""
    words = [result.spec]
    for name, version in result.versions.items():
        if name in ("gcc", "llvm"):
            words.insert(1, f"%{name}@{version}")
        elif name.lower() in _PACKAGES:
            words.append(f"^{name.lower()}@{version}")
        elif name == name.lower():
            (package,) = externals.by_package({name: {}})
            number = externals.spack_version(version)
            words.append(f"^{package}@{number}{_VARIANTS.get(name, '')}")
    full = recipe.complete(specs.parse(" ".join(words)))
    return [str(each.keywords.get("msg") or each.arguments) for each in recipe.refusals(full)]
