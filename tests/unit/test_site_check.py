"""A solution that is not the site's is refused, with the file and the key."""

from __future__ import annotations

import copy
import re
from typing import Any, Dict

import pytest

from hvd.core.errors import HvdError
from hvd.model import environment, pins
from hvd.model.dag import DagNode
from hvd.solve import dag_table, site_check

NAME = "perlmutter-hvd"


def node(name: str, version: str, **more: Any) -> Dict[str, Any]:
    arch = {"platform": "linux", "platform_os": "sles15", "target": {"name": "zen3"}}
    return {"name": name, "version": version, "arch": arch, "parameters": {}, **more}


def solution() -> Dict[str, Any]:
    """A solution as a lock file has it: Horovod is built, all else is the site's."""
    chosen = environment.load(NAME)
    variants = {k: v if v in (True, False) else sorted(v) for k, v in chosen.root.variants.items()}
    nodes = [node("py-horovod", "0.27.0", parameters=variants), node("py-psutil", "7.2.2")]
    for package, entries in site_check.externals(site_check.file("perlmutter")).items():
        version, prefix, modules = entries[0]
        external = {"path": prefix or None, "module": list(modules) or None}
        nodes.append(node(package, version, external=external))
    return {str(number): each for number, each in enumerate(nodes)}


def found(specs: Dict[str, Any]) -> list:
    return site_check.problems(environment.load(NAME), specs)


def get(specs: Dict[str, Any], name: str) -> Dict[str, Any]:
    return next(each for each in specs.values() if each["name"] == name)


def test_the_sites_own_solution_is_taken() -> None:
    assert found(solution()) == []
    site_check.require(environment.load(NAME), solution())


@pytest.mark.parametrize(
    ("package", "change", "text"),
    [
        ("cuda", {"version": "12.9.0"}, "cuda@12.9.0 at /opt/nvidia/"),
        ("cuda", {"external": {"path": "/usr/local/cuda", "module": None}}, "at /usr/local/cuda"),
        ("nccl", {"external": {"path": "/x", "module": ["nccl/2"]}}, "nccl@2.15.5 at /x is not"),
        ("gcc", {"external": {"path": "/usr", "module": None}}, "gcc@11.2.0 at /usr is not"),
    ],
)
def test_another_external(package, change, text) -> None:
    specs = solution()
    get(specs, package).update(change)
    (problem,) = found(specs)
    assert text in problem
    key = f"key 'packages:{package}:externals' of environments/sites/perlmutter/packages.yaml"
    assert key in problem


def test_one_that_the_site_does_not_declare() -> None:
    specs = {**solution(), "x": node("llvm", "17.0.0", external={"path": "/usr", "module": None})}
    (problem,) = found(specs)
    assert "llvm@17.0.0 at /usr is not the site's" in problem


def test_building_what_the_site_has() -> None:
    specs = solution()
    del get(specs, "cray-mpich")["external"]
    (problem,) = found(specs)
    assert "cray-mpich@8.1.25 is to be built, though the site has it" in problem


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("platform_os", "debian12", "is for os=debian12, not sles15"),
        ("target", {"name": "zen4"}, "is for target=zen4, not zen3"),
        # Spack writes a target without parts as its name alone
        ("target", "x86_64", "is for target=x86_64, not zen3"),
    ],
)
def test_a_node_of_another_architecture(key, value, text) -> None:
    specs = copy.deepcopy(solution())
    get(specs, "py-psutil")["arch"][key] = value
    (problem,) = found(specs)
    assert text in problem and "environments/perlmutter-hvd/spack.yaml" in problem


@pytest.mark.parametrize(("variant", "value"), [("nccl", False), ("frameworks", ["pytorch"])])
def test_another_variant(variant, value) -> None:
    specs = solution()
    get(specs, "py-horovod")["parameters"][variant] = value
    (problem,) = found(specs)
    assert f"py-horovod has {variant}=" in problem


def test_the_error_has_them_all_and_a_way_out() -> None:
    specs = solution()
    get(specs, "cuda")["version"] = "1"
    get(specs, "nccl")["version"] = "2"
    with pytest.raises(HvdError, match="perlmutter-hvd does not match its site") as caught:
        site_check.require(environment.load(NAME), specs)
    assert len(caught.value.message.splitlines()) == 3 and caught.value.remedy


def table(*nodes: DagNode) -> str:
    return dag_table.render(environment.load(NAME), nodes, pins.versions().pairs[0])


HOROVOD = DagNode(
    "py-horovod",
    "0.27.0",
    "+cuda~ddl+mpi cuda_arch=80 gpu_ops=none",
    architecture="linux-sles15-zen3",
)
GCC = DagNode(
    "gcc",
    "11.2.0",
    "+bootstrap~piclibs languages=c,c++,fortran",
    external=True,
    prefix="/opt",
    architecture="linux-sles15-zen3",
)


def test_a_table_says_what_is_on_and_where_it_is_from() -> None:
    text = table(GCC, HOROVOD)
    assert "1 packages to build, 1 of the site, all for linux-sles15-zen3." in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == [
        "| py-horovod | 0.27.0 | +cuda +mpi cuda_arch=80 | built |",
        "| gcc | 11.2.0 | languages=c,c++,fortran | /opt |",
    ]


def test_a_table_is_the_same_where_the_compiler_is_there() -> None:
    runtime = DagNode("gcc-runtime", "11.2.0", architecture="linux-sles15-zen3")
    assert table(GCC, HOROVOD, runtime) == table(GCC, HOROVOD)


def test_a_table_names_a_foreign_architecture() -> None:
    foreign = DagNode("gmake", "4.3", architecture="linux-debian12-x86_64")
    assert "all for linux-sles15-zen3 but linux-debian12-x86_64" in table(GCC, HOROVOD, foreign)


def test_the_difference_from_the_table_that_is_kept() -> None:
    chosen = environment.load(NAME)
    kept = dag_table.file(chosen).read_text()
    assert dag_table.difference(chosen, kept) == []
    changed = re.sub(r"\| nccl \| 2\.15\.5 ", "| nccl | 2.18.3 ", kept)
    lines = dag_table.difference(chosen, changed)
    assert "environments/perlmutter-hvd/dag.md as kept" in lines[0]
    assert [line[:15] for line in lines if line.startswith(("-|", "+|"))] == [
        "-| nccl | 2.15.",
        "+| nccl | 2.18.",
    ]
