"""A solution that is not the site's is refused, with the file and the key."""

from __future__ import annotations

import copy
from typing import Any, Dict

import pytest

from hvd.core.errors import HvdError
from hvd.model import environment
from hvd.solve import site_check
from tests.unit.building import node, site_solution

NAME = "perlmutter-hvd"


def solution() -> Dict[str, Any]:
    return site_solution(NAME)


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
        ("nccl", {"external": {"path": "/x", "module": ["nccl/2"]}}, "nccl@2.29.2 at /x is not"),
        ("gcc", {"external": {"path": "/usr", "module": None}}, "gcc@14.3.0 at /usr is not"),
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
    specs = solution()
    foreign = node("llvm", "17.0.0", external={"path": "/usr", "module": None})
    specs["x"] = {**foreign, "arch": get(specs, "py-psutil")["arch"]}
    (problem,) = found(specs)
    assert "llvm@17.0.0 at /usr is not the site's" in problem


def test_building_what_the_site_has() -> None:
    specs = solution()
    del get(specs, "cray-mpich")["external"]
    (problem,) = found(specs)
    assert "cray-mpich@9.1.0 is to be built, though the site has it" in problem


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
