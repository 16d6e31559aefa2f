"""Each procedure of docs/seeds.yaml does what is said of it."""

import re
import shlex

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.docs import pages
from hvd.model import environment, recipe, specs
from hvd.solve import kept

RECIPE = recipe.load("py-horovod")
PREFIXES = {name: f"/{name}" for name in ("cmake", "mpi", "cuda", "nccl")}
PREFIXES["ibm-ddl"] = "/ddl"
PROCEDURES = [each for document in pages.load_seeds() for each in document["procedures"]]


def having(key):
    """The procedures with ``key``, for a test of each."""
    return pytest.mark.parametrize(
        "procedure", [pytest.param(p, id=p["what"]) for p in PROCEDURES if key in p]
    )


@having("launch")
def test_a_launch_prints_the_lines_of_the_document(procedure, launched):
    done = launched(shlex.split(procedure["launch"]), **procedure.get("environ", {}))
    assert done.status == 0, done.err
    assert set(map(str.strip, procedure["lines"])) <= set(done.out.splitlines()), done.out


def solved(found):
    """The spec of an environment, with the GPU architecture and the packages of its solution."""
    words = found.specs[0].split()
    for package in kept.load(found).packages:
        if package.name == "py-horovod":
            words[1:1] = [each for each in package.variants if each.startswith("cuda_arch=")]
        else:
            words += [f"^{package.name}@{package.version}", *package.variants]
    return " ".join(words)


@having("spec")
def test_a_build_has_the_variables_of_the_document(procedure):
    text = procedure["spec"]
    if text.endswith("-hvd"):
        text = solved(environment.load(text))
    complete = RECIPE.complete(specs.parse(text))
    RECIPE.check(complete)
    variables = RECIPE.build_environment(complete, PREFIXES, "-O2", 1)
    assert procedure["variables"].items() <= variables.items(), variables


@having("refused")
def test_what_hangs_is_refused(procedure):
    with pytest.raises(HvdError):
        RECIPE.check(RECIPE.complete(specs.parse(procedure["refused"])))
    accepted = re.sub(r"3\.1\.3$", "3.1.4", procedure["refused"])
    RECIPE.check(RECIPE.complete(specs.parse(accepted)))


@having("see")
def test_a_file_has_the_words(procedure):
    text = (paths.ROOT / procedure["see"]).read_text()
    assert [words for words in procedure["words"] if words not in text] == []


def test_every_procedure_has_evidence_or_a_reason():
    evidence = {"launch", "spec", "refused", "see"}
    for each in PROCEDURES:
        assert each["answer"] in ("yes", "partly", "no"), each
        assert each["answer"] != "yes" or evidence & set(each), each
        assert each["answer"] == "yes" or each.get("reason"), each
