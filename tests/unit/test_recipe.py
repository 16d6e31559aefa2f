"""The recipe, read without Spack: its form, and what it refuses."""

import ast
import re

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.model import environment, recipe, specs

RECIPE = paths.PACKAGES / "py_horovod" / "package.py"
CONSTRAINTS = ("conflicts", "requires", "depends_on", "patch")
horovod = recipe.load("py-horovod")


def test_every_constraint_cites_its_source():
    """The comment above names a link or a command; a directive in a group takes the group's."""
    comment, in_comment, uncited = "", False, []
    for number, line in enumerate(RECIPE.read_text().splitlines(), 1):
        text = line.strip()
        if text.startswith("#"):
            comment = f"{comment}{text}" if in_comment else text
        elif not text:
            comment = ""
        in_comment = text.startswith("#")
        # but for the languages of the source
        constrains = re.match(rf"({'|'.join(CONSTRAINTS)})\(", text)
        if constrains and not re.match(r'depends_on\("(c|cxx)", type="build"\)', text):
            if "https://" not in comment and "g++ -fsyntax-only" not in comment:
                uncited.append(f"{RECIPE.name}:{number}: {text}")
    assert not uncited


def test_spack_takes_names_and_defaults_as_they_are_meant():
    """What loops assign are attributes of the class; defaults go to all directives in a block."""
    tree = ast.walk(ast.parse(RECIPE.read_text()))
    (recipe_class,) = (node for node in tree if isinstance(node, ast.ClassDef))
    nodes = list(ast.walk(recipe_class))
    targets = [each.target for each in nodes if isinstance(each, ast.For)]
    assigned = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    assert not assigned & {*called(recipe_class), "url", "homepage", "maintainers"}
    takes = {"type": {"depends_on"}, "sticky": {"variant"}, "deprecated": {"version"}}
    for block in (each for each in nodes if isinstance(each, ast.With)):
        for item in block.items:
            if called(item) == {"default_args"}:
                (keyword,) = item.context_expr.keywords
                directives = called(*block.body) & {*CONSTRAINTS, "version", "variant"}
                assert directives == takes[keyword.arg], ast.unparse(item)


def called(*nodes):
    """The names of the functions that are called in parts of a program."""
    calls = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def test_every_patch_says_what_why_and_where_from():
    patches = sorted((RECIPE.parent / "patches").glob("*.patch"))
    assert patches
    for patch in patches:
        head = patch.read_text().partition("--- a/")[0]
        for part in ("Why:", "Upstream: https://", "Versions:"):
            assert part in head, f"{patch.name} lacks '{part}'"
        if "Commit:" in head:
            # what upstream did as well
            assert re.search(r"^Commit:   [0-9a-f]{40}( \(.*\))?$", head, re.MULTILINE), patch.name
    used = {directive.arguments[0] for directive in horovod.named("patch")}
    assert used == {f"patches/{patch.name}" for patch in patches}


REFUSED = {
    # what a person types, and part of what is said
    "^openmpi@3.1.3": "Open MPI 3.1.3 hangs in Horovod; use openmpi@:3.1.2 or openmpi@4:",
    "+nccl": "requires a GPU architecture; use cuda_arch=<capability>",
    "~mpi~gloo": "requires a controller; use +mpi or +gloo",
    "@0.27.0 frameworks=tensorflow ^py-tensorflow@2.14": "does not support TensorFlow 2.13",
    "+ccl+cuda": "has the variant 'ccl' only with @0.21.1: +mpi~cuda~rocm",
    "@0.21.0 +ccl": "has the variant 'ccl' only with @0.21.1: +mpi~cuda~rocm",
    "+ccl~mpi": "has the variant 'ccl' only with",
    "+ddl~cuda": "has the variant 'ddl' only with +cuda gpu_ops=none",
    # the two deadlock
    "+nccl gpu_ops=mpi +cuda cuda_arch=80": "has the variant 'nccl' only with",
    "~cuda~rocm gpu_ops=mpi": "has the variant 'gpu_ops' only with +cuda or +rocm",
    "^py-torch+cuda": "depends on py-torch~cuda, but there is py-torch+cuda",
    "+ncl": "no variant 'ncl'",
    "frameworks=torch": "no frameworks=torch",
    "nccl_link=yes +nccl cuda_arch=80": "no nccl_link=yes",
    "+cuda cuda_arch=999": "has no cuda_arch=999",
    "+cuda cuda_arch=8.0": "did you mean '80'?",
    "+rocm amdgpu_target=mi250x": "has no amdgpu_target=mi250x",
    "target=foo": "has no target=foo",
    "target=zen3:zen9": "has no target=zen9",
    "mpi=openmpi": "use +mpi or ~mpi",
    "+frameworks": "frameworks needs a value",
    "@1.0": "has no version 1.0",
    # another MPI than the ones that the recipe requires
    "+ddl~nccl+cuda cuda_arch=70 target=power9le ^openmpi": "requires IBM Spectrum MPI",
    "+cuda cuda_arch=80 gpu_ops=mpi ^openmpi~cuda": "requires a CUDA-aware MPI",
    "+cuda cuda_arch=80 gpu_ops=mpi ^intel-oneapi-mpi": "requires a CUDA-aware MPI",
}
TAKEN = (
    "",
    "@0.25:",
    "+nccl cuda_arch=80",
    "+nccl+rocm amdgpu_target=gfx90a ^hip@5.7",
    "+nccl+rocm amdgpu_target=gfx90a:xnack-,gfx942",
    "+nccl+cuda cuda_arch=80,90a target=x86_64_v3:",
    # an older Horovod has it
    "^py-torch@1.2",
    "frameworks=keras",
    "+ddl~nccl cuda_arch=70 target=power9le",
    "+cuda cuda_arch=80 gpu_ops=mpi ^mpich",
    # it may get any MPI, where a user names one
    "+ccl ^openmpi",
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_needs_no_solver(text):
    with pytest.raises(HvdError) as caught:
        horovod.accept(specs.parse(f"py-horovod {text}"))
    assert REFUSED[text] in f"{caught.value.message}\n{caught.value.remedy}"


@pytest.mark.parametrize("text", TAKEN)
def test_what_a_solver_may_make_right_is_left_to_it(text):
    horovod.accept(specs.parse(f"py-horovod {text}"))


def test_every_environment_is_one_that_the_recipe_takes():
    for name in environment.names():
        each = environment.load(name)
        horovod.accept(each.root, ("cuda_arch", "amdgpu_target") if each.site else ())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("spec py-horovod+nccl cuda_arch=80", 0, "accepted: py-horovod@0.28.1+cuda"),
        ("spec py-horovod +nccl cuda_arch=80 ^nccl@2.8.3", 0, "use nccl@:2.8.2 or nccl@2.8.4:"),
        ("spec py-horovod ~mpi~gloo", 11, "use +mpi or +gloo"),
        ("spec py-horovod +ncl", 11, "did you mean 'nccl'?"),
        ("spec zlib", 2, "not a spec of py-horovod"),
        ("concretize local-hvd --spec py-horovod~mpi~gloo", 11, "use +mpi or +gloo"),
    ],
)
def test_a_command_answers_before_a_solve_and_before_it_writes(hvd, state, words, status, said):
    done = hvd(*words.split())
    assert done.status == status and said in done.out + done.err
    assert not state.exists()


@pytest.mark.parametrize("clause", ["cflags=-O2", "/abcdef"])
def test_a_clause_that_spack_alone_understands(clause):
    """Spack gets it as it is; the pip engine cannot build it."""
    spec = specs.parse(f"py-horovod@0.28.1 {clause}", strict=False)
    horovod.accept(spec)
    with pytest.raises(HvdError) as caught:
        horovod.check(horovod.complete(spec))
    assert clause.partition("=")[0] in caught.value.message
    assert "--engine spack" in caught.value.remedy
