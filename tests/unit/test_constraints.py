"""Every constraint of the recipe, evaluated as the pip engine does; see tests/constraints.py."""

import re

import pytest

from hvd.model import recipe, specs
from tests.constraints import CASES, complete

RECIPE = recipe.load("py-horovod")
OURS = [case for case in CASES if not case.virtual]


def refusals(text):
    return list(RECIPE.refusals(specs.parse(complete(RECIPE, text))))


def said(directive):
    return directive.keywords.get("msg", directive.arguments[0])


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.refused)
def test_it_is_refused_with_the_way_out(case):
    assert [said(d) for d in refusals(case.refused) if case.message in said(d)], case.message


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.taken)
def test_its_neighbour_is_taken(case):
    assert not [said(directive) for directive in refusals(case.taken)]


def test_no_constraint_is_without_a_case():
    """A constraint that no case meets could be deleted, or be wrong, unnoticed."""
    met = {
        constraint(d) for case in OURS for d in refusals(case.refused) if case.message in said(d)
    }
    left = {constraint(each) for each in RECIPE.directives if constrains(each)} - met
    # what a provider of MPI provides, only Spack knows; the other is a preference, and
    # tests/spack/test_plain_spack.py has its case
    assert left == {("mpi@3:", "+mpi"), ("oneCCL requires MPI; use +mpi or ~ccl", "+ccl")}


def constraint(directive):
    """What it says, and the last of its conditions, without the GPU architecture of a loop."""
    return (
        re.sub(r"(cuda_arch=)\d+[af]?( in place of .*)?$", r"\1", said(directive)),
        re.sub(r"cuda_arch=\d+[af]?", "cuda_arch=", "".join(directive.when[-1:])),
    )


def constrains(directive):
    if directive.name in ("conflicts", "requires"):
        return True
    if directive.name != "depends_on" or directive.arguments[0].startswith("libuv"):
        # macOS is no platform of ours; the bound is upstream's
        return False
    wanted = specs.parse(directive.arguments[0])
    return bool(wanted.versions or wanted.variants)
