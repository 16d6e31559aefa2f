"""A solution that is not the site's is refused, with the file and the key."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from hvd.core.errors import HvdError
from hvd.model import environment
from hvd.solve import site_check
from tests.unit.building import site_solution

NAME = "perlmutter-hvd"
#: Where it has NCCL.
NCCL = "/global/common/software/nersc9/nccl/2.29.2-cu13"


def solution() -> Dict[str, Any]:
    return site_solution(NAME)


def get(specs: Dict[str, Any], name: str) -> Dict[str, Any]:
    return next(each for each in specs.values() if each["name"] == name)


def external(path: str, module: Any = None) -> Dict[str, Any]:
    return {"external": {"path": path, "module": module}}


def variant(**changes: Any) -> Dict[str, Any]:
    return {"parameters": {**get(solution(), "py-horovod")["parameters"], **changes}}


def arch(**changes: Any) -> Dict[str, Any]:
    return {"arch": {**get(solution(), "py-psutil")["arch"], **changes}}


@pytest.mark.parametrize(
    ("package", "change", "text"),
    [
        # an external that is not the site's
        ("cuda", {"version": "12.9.0"}, "cuda@12.9.0 at /opt/nvidia/"),
        ("cuda", external("/usr/local/cuda"), "at /usr/local/cuda"),
        ("nccl", external(NCCL, ["nccl/2"]), f"nccl@2.29.2 at {NCCL} is not"),
        ("gcc", external("/usr"), "gcc@14.3.0 at /usr is not"),
        ("py-psutil", external("/usr"), "py-psutil@7.2.2 at /usr is not"),
        # another variant
        ("py-horovod", variant(nccl=False), "py-horovod has nccl="),
        ("py-horovod", variant(frameworks=["pytorch"]), "py-horovod has frameworks="),
        # one that is built
        ("cray-mpich", {"external": None}, "cray-mpich@9.1.0 is to be built"),
        # another architecture
        ("py-psutil", arch(platform_os="debian12"), "is for os=debian12, not sles15"),
        ("py-psutil", arch(target={"name": "zen4"}), "is for target=zen4, not zen3"),
        # Spack writes a target without parts as its name alone
        ("py-psutil", arch(target="x86_64"), "is for target=x86_64, not zen3"),
    ],
)
def test_what_is_not_the_sites_is_named_with_its_file_and_key(package, change, text) -> None:
    specs = solution()
    node = get(specs, package)
    node.update(change)
    if node.get("external", True) is None:
        del node["external"]
    (problem,) = site_check.problems(environment.load(NAME), specs)
    assert text in problem
    if "arch" in change:
        assert "key 'specs' of environments/perlmutter-hvd/spack.yaml" in problem
    elif "parameters" not in change:
        key = f"'packages:{package}:externals' of environments/sites/perlmutter/packages.yaml"
        assert key in problem


def test_the_sites_own_solution_is_taken_and_an_error_has_all_problems_and_a_way_out() -> None:
    specs = solution()
    site_check.require(environment.load(NAME), specs)
    get(specs, "cuda")["version"] = "1"
    get(specs, "nccl")["version"] = "2"
    with pytest.raises(HvdError, match="perlmutter-hvd does not match its site") as caught:
        site_check.require(environment.load(NAME), specs)
    assert len(caught.value.message.splitlines()) == 3 and caught.value.remedy


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ((), ()),
        (("python",), ("takes python@3.12 from", "make it as docs/sites/perlmutter.md says")),
        (("python", "cuda"), ("takes cuda@13.2 from", "rehearsal -k perlmutter-hvd")),
    ],
)
def test_what_a_machine_lacks_is_said_before_spack_does(tmp_path, lacking, words) -> None:
    specs = {each: spec for each, spec in solution().items() if spec["name"] in ("cuda", "python")}
    for spec in specs.values():
        place = tmp_path / spec["name"]
        spec.update(external(str(place)))
        if spec["name"] not in lacking:
            place.mkdir()
    if not lacking:
        site_check.require_here(environment.load(NAME), specs)
        return
    with pytest.raises(HvdError) as told:
        site_check.require_here(environment.load(NAME), specs)
    assert all(word in f"{told.value.message} {told.value.remedy}" for word in words)
