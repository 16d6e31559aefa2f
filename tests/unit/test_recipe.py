"""The recipe, read without Spack: its form, and what it refuses."""

import re

import pytest

from hvd import paths, recipe, specs
from hvd.errors import HvdError

RECIPE = paths.PACKAGES / "py_horovod" / "package.py"
CONSTRAINTS = ("conflicts", "requires", "depends_on", "patch")
horovod = recipe.load("py-horovod")


def concrete(text: str) -> specs.Spec:
    spec = specs.parse(text)
    spec.variants = {**horovod.defaults(spec), **spec.variants}
    return spec


#: One spec that must be refused with this message, and a neighbour that must pass.
REFUSED = [
    (
        "py-horovod@0.28.1 ^openmpi@3.1.3",
        "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:",
        "py-horovod@0.28.1 ^openmpi@3.1.4",
    ),
    (
        "py-horovod@0.28.1~mpi~gloo",
        "Horovod requires a controller; use +mpi or +gloo",
        "py-horovod@0.28.1~mpi+gloo",
    ),
    (
        "py-horovod@0.28.1+nccl",
        "NCCL requires a GPU stack; use +cuda cuda_arch=<capability> or +rocm",
        "py-horovod@0.28.1+nccl+cuda cuda_arch=80",
    ),
    (
        "py-horovod@0.28.1+cuda+rocm cuda_arch=80",
        "Horovod supports one GPU stack; use +cuda or +rocm",
        "py-horovod@0.28.1~cuda+rocm",
    ),
    (
        "py-horovod@0.28.1+cuda cuda_arch=none",
        "requires a GPU architecture; use cuda_arch=<capability>",
        "py-horovod@0.28.1+cuda cuda_arch=70",
    ),
    (
        "py-horovod@0.28.1+ddl",
        "IBM DDL does not compile with Horovod 0.24 and later; use +nccl",
        "py-horovod@0.28.1~ddl",
    ),
    (
        "py-horovod@0.28.1+ccl+cuda cuda_arch=80",
        "oneCCL operations are for CPUs; use ~ccl or ~cuda",
        "py-horovod@0.28.1+ccl",
    ),
    (
        "py-horovod@0.28.1+ccl+rocm",
        "oneCCL operations are for CPUs; use ~ccl or ~rocm",
        "py-horovod@0.28.1~ccl+rocm",
    ),
    (
        "py-horovod@0.28.1 frameworks=keras",
        "Keras requires the TensorFlow plugin; use frameworks=tensorflow,keras",
        "py-horovod@0.28.1 frameworks=keras,tensorflow",
    ),
    (
        "py-horovod@0.28.1~gloo frameworks=ray",
        "Ray requires the Gloo controller; use +gloo",
        "py-horovod@0.28.1+gloo frameworks=ray",
    ),
    (
        "py-horovod@0.28.1+cuda cuda_arch=80 ^py-torch@2.12.0~cuda",
        "Horovod with CUDA requires PyTorch with CUDA; use ^py-torch+cuda",
        "py-horovod@0.28.1+cuda cuda_arch=80 ^py-torch@2.12.0+cuda",
    ),
    (
        "py-horovod@0.28.1 ^py-torch@2.12.0+cuda",
        "PyTorch with CUDA requires Horovod with CUDA; use +cuda or ^py-torch~cuda",
        "py-horovod@0.28.1 ^py-torch@2.12.0~cuda",
    ),
    (
        "py-horovod@0.28.1 ^py-torch@2.14.0~cuda",
        "does not compile with PyTorch 2.14 and later; use py-torch@:2.13",
        "py-horovod@0.28.1 ^py-torch@2.13.0~cuda",
    ),
    (
        "py-horovod@0.28.1 frameworks=tensorflow ^py-tensorflow@2.19.1",
        "does not compile with TensorFlow 2.19 and later; use py-tensorflow@:2.18",
        "py-horovod@0.28.1 frameworks=tensorflow ^py-tensorflow@2.18.1",
    ),
    (
        "py-horovod@0.28.1 frameworks=tensorflow,keras ^py-keras@3.1.0",
        "does not support Keras 3; use py-keras@:2",
        "py-horovod@0.28.1 frameworks=tensorflow,keras ^py-keras@2.15.0",
    ),
    ("py-horovod@0.28.1 ^py-torch@1.4.0~cuda", "depends on py-torch@1.5:", "py-horovod@0.28.1"),
    ("py-horovod@0.28.1 ^cmake@3.12.4", "depends on cmake@3.13:", "py-horovod ^cmake@3.13.0"),
    ("py-horovod@0.28.1 ^python@3.5.9", "depends on python@3.6:", "py-horovod ^python@3.6.0"),
    ("py-horovod@0.28.1 ^py-cffi@1.3.1", "depends on py-cffi@1.4:", "py-horovod ^py-cffi@1.4.0"),
]


@pytest.mark.parametrize(("bad", "message", "good"), REFUSED, ids=[row[0] for row in REFUSED])
def test_bad_combination_is_refused_and_its_neighbour_passes(bad, message, good):
    with pytest.raises(HvdError) as caught:
        horovod.check(concrete(bad))
    assert message in caught.value.message
    horovod.check(concrete(good))


def test_every_message_is_tested():
    messages = {
        directive.keywords["msg"]
        for name in ("conflicts", "requires")
        for directive in horovod.named(name)
    }
    tested = " ".join(row[1] for row in REFUSED)
    untested = [m for m in messages if not any(row[1] in m for row in REFUSED)]
    assert not untested, f"no row of REFUSED asserts these (rows: {tested})"


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


def test_every_message_names_the_way_out():
    for name in ("conflicts", "requires"):
        for directive in horovod.named(name):
            message = directive.keywords["msg"]
            assert re.search(r"; use ", message), message
            assert not message.endswith("."), message


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
    spec = concrete("py-horovod@0.28.1")
    on = {name for name, value in spec.variants.items() if value is True}
    assert on == {"mpi", "gloo"}
    assert spec.variants["frameworks"] == {"pytorch"}
    horovod.check(spec)
