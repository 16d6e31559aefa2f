"""The recipe, read without Spack: its form, and what it refuses."""

import re

from hvd import paths, recipe, specs
from tests.constraints import complete

RECIPE = paths.PACKAGES / "py_horovod" / "package.py"
CONSTRAINTS = ("conflicts", "requires", "depends_on", "patch")
horovod = recipe.load("py-horovod")


def test_every_constraint_cites_its_source():
    """The line above names a link or a command; a directive in a group takes the group's."""
    lines = RECIPE.read_text().splitlines()
    uncited = []
    for number, line in enumerate(lines):
        if not re.match(rf"\s+({'|'.join(CONSTRAINTS)})\(", line):
            continue
        if re.search(r'depends_on\("(c|cxx)", type="build"\)', line):
            # the languages of the source
            continue
        above = number - 1
        while above and not lines[above].lstrip().startswith("#") and lines[above].strip():
            above -= 1
        comment = ""
        while lines[above].lstrip().startswith("#"):
            comment = lines[above] + comment
            above -= 1
        if "https://" not in comment and "g++ -fsyntax-only" not in comment:
            uncited.append(f"{RECIPE.name}:{number + 1}: {line.strip()}")
    assert not uncited


def test_every_patch_says_what_why_and_where_from():
    patches = sorted(RECIPE.parent.glob("*.patch"))
    assert patches
    for patch in patches:
        head = patch.read_text().partition("--- a/")[0]
        for part in ("Why:", "Upstream: https://", "Versions:"):
            assert part in head, f"{patch.name} lacks '{part}'"
    used = {directive.arguments[0] for directive in horovod.named("patch")}
    assert used == {patch.name for patch in patches}


def test_defaults_are_a_cpu_build_with_both_controllers():
    spec = specs.parse(complete(horovod, "@0.28.1"))
    on = {name for name, value in spec.variants.items() if value is True}
    assert on == {"mpi", "gloo"}
    assert spec.variants["frameworks"] == {"pytorch"}
    horovod.check(spec)
