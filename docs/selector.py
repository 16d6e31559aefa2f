"""The selector of the start page: the recipe's answer to every combination of choices.

A directive of Sphinx: the answers are computed when the site is built.
"""

from __future__ import annotations

import itertools
import json
from typing import Dict, Iterator, List, NamedTuple, Tuple

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from hvd.core.errors import HvdError
from hvd.model import environment, recipe, specs


class Choice(NamedTuple):
    """What a user has, and its clauses in a spec: Horovod's own, and a dependency."""

    label: str
    own: str = ""
    dependency: str = ""


def _versions(name: str, own: str, package: str, versions: str) -> List[Choice]:
    newest = Choice(f"{name}, newest that fits", own)
    return [newest, *(Choice(f"{name} {v}", own, f"^{package}@{v}") for v in versions.split())]


FRAMEWORKS = [
    *_versions(
        "PyTorch",
        "frameworks=pytorch",
        "py-torch",
        "2.15 2.14 2.13 2.12 2.11 2.10 2.9 2.8 2.7 2.6 2.1 2.0 1.13 1.12 1.10",
    ),
    *_versions(
        "TensorFlow",
        "frameworks=tensorflow",
        "py-tensorflow",
        "2.21 2.20 2.19 2.18 2.17 2.16 2.15 2.12 2.11 2.9 2.6 2.3",
    ),
    Choice("Keras 3 on TensorFlow", "frameworks=tensorflow,keras", "^py-keras@3"),
    Choice("Keras 2 on TensorFlow 2.15", "frameworks=tensorflow,keras", "^py-tensorflow@2.15"),
    Choice("PyTorch and TensorFlow", "frameworks=pytorch,tensorflow"),
    Choice("TensorFlow in Spark", "frameworks=tensorflow,spark"),
    Choice("TensorFlow in Ray", "frameworks=tensorflow,ray"),
]
GPUS = [
    Choice("none"),
    Choice("none, Intel CPUs with oneCCL", "+ccl"),
    Choice("NVIDIA V100", "+nccl+cuda cuda_arch=70"),
    Choice("NVIDIA A100", "+nccl+cuda cuda_arch=80"),
    Choice("NVIDIA A100, MPI in place of NCCL", "+cuda cuda_arch=80 gpu_ops=mpi"),
    Choice("NVIDIA H100, H200, GH200", "+nccl+cuda cuda_arch=90"),
    Choice("AMD MI250X", "+nccl+rocm amdgpu_target=gfx90a"),
    Choice("AMD MI300A, MI300X", "+nccl+rocm amdgpu_target=gfx942"),
    Choice("IBM Power9 with V100 and DDL", "+ddl~nccl+cuda cuda_arch=70 target=power9le"),
]
MPIS = [
    Choice("any"),
    Choice("Open MPI", "", "^openmpi"),
    Choice("MPICH", "", "^mpich"),
    Choice("Cray MPICH", "", "^cray-mpich"),
    Choice("Intel MPI", "", "^intel-oneapi-mpi"),
    Choice("Spectrum MPI", "", "^spectrum-mpi"),
    Choice("none, Gloo", "~mpi+gloo"),
]


def questions() -> Dict[str, List[Choice]]:
    """Return what is asked and its choices; Horovod has the last release of each minor."""
    last: Dict[str, str] = {}
    for version in recipe.load(environment.HOROVOD).versions():
        last.setdefault(version.rpartition(".")[0], version)
    releases = [Choice(version, f"@{version}") for version in last.values()]
    newest = Choice("newest that fits")
    asked = {"Horovod": [newest, *releases], "Framework": FRAMEWORKS, "GPUs": GPUS, "MPI": MPIS}
    return asked


def spec(chosen: Tuple[Choice, ...]) -> str:
    """Return the spec of a combination; Horovod's version comes first."""
    words = [each.own for each in chosen[1:]] + [each.dependency for each in chosen]
    return " ".join(filter(None, [environment.HOROVOD + chosen[0].own, *words]))


def answers() -> Iterator[Tuple[str, bool, str]]:
    """Yield the spec of each combination, whether it is accepted, and what is refused."""
    horovod = recipe.load(environment.HOROVOD)
    for chosen in itertools.product(*questions().values()):
        text = spec(chosen)
        try:
            _, error = horovod.accept(specs.parse(text))
            accepted = True
        except HvdError as refused:
            error, accepted = refused, False
        lines = [error.message, error.remedy] if error else []
        yield text, accepted, "\n".join(filter(None, lines))


class Selector(SphinxDirective):
    """The choices as a form, and a table of answers for its script."""

    def run(self) -> List[nodes.Node]:
        kinds: Dict[Tuple[bool, str], int] = {}
        table = [kinds.setdefault((ok, why), len(kinds)) for _, ok, why in answers()]
        answered = json.dumps({"kinds": list(kinds), "table": table}, separators=(",", ":"))
        # no text may end the element that it stands in
        context = {"questions": questions(), "answers": answered.replace("<", "\\u003c")}
        text = self.env.app.builder.templates.render("selector.html", context)
        return [nodes.raw("", text, format="html")]


def setup(app) -> Dict[str, bool]:
    app.add_directive("selector", Selector)
    return {"parallel_read_safe": True}
