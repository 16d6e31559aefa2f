"""`./hvd container`: what goes into an image, how it is written down, and what is refused."""

import io
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from dockerfile_parse import DockerfileParser

from hvd.cli import container
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver.container import plan, recipe
from hvd.model import environment, pins

CUDA = "py-horovod@0.28.1 +mpi+gloo+nccl+cuda~rocm cuda_arch=80,90 frameworks:=pytorch"
GLOO = "py-horovod@0.28.1 ~mpi+gloo~cuda~rocm frameworks:=pytorch,tensorflow"
#: Environments, further arguments of the plan, and specs in their place.
IMAGES = {
    "local": ("local-hvd", {}, ""),
    "mpich": ("local-hvd", {"mpi": "mpich"}, ""),
    "cuda": ("local-hvd", {}, CUDA),
    "gloo": ("local-hvd", {}, GLOO),
    "site": ("stampede3-hvd", {}, ""),
}


@pytest.fixture(params=IMAGES)
def made(request, derived):
    name, arguments, spec = IMAGES[request.param]
    return plan.make(derived(name, spec), **arguments)


@pytest.fixture
def derived(tmp_path, monkeypatch):
    """A function that gives an environment, with another spec in a directory of the test's."""
    monkeypatch.setattr(paths, "STATE", tmp_path)

    def load(name, spec):
        base = environment.load(name)
        return environment.derive(base, spec) if spec else base

    return load


def tool(name):
    """A linter of the test requirements, beside the interpreter."""
    found = shutil.which(name, path=str(pathlib.Path(sys.executable).parent))
    assert found, f"{name} is in ci/requirements-test.txt"
    return found


def test_a_containerfile_has_no_fault_that_hadolint_finds(made, tmp_path):
    file = tmp_path / "Containerfile"
    file.write_text(recipe.render(made, "containerfile"))
    done = subprocess.run([tool("hadolint"), "--no-color", file], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def sections(definition):
    """The sections of an Apptainer definition: stage, name and text of each."""
    found, stage = [], ""
    for part in re.split(r"^(?=%|BootStrap:)", definition, flags=re.MULTILINE):
        head, _, text = part.partition("\n")
        if head.startswith("BootStrap"):
            stage = re.search(r"^Stage: (\w+)$", text, re.MULTILINE)[1]
        elif head.startswith("%"):
            found.append((stage, head[1:], text))
    return found


def test_the_shell_of_a_definition_has_no_fault_that_shellcheck_finds(made, tmp_path):
    for number, (_, name, text) in enumerate(sections(recipe.render(made, "apptainer"))):
        if name in ("post", "test", "environment", "runscript"):
            file = tmp_path / f"{number}.sh"
            file.write_text(text)
            # Apptainer's own shell, as its %post and %test have it
            done = subprocess.run(
                [tool("shellcheck"), "--shell=sh", "--exclude=SC1091", file],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout


def steps(made):
    text = recipe.render(made, "containerfile").encode()
    parser = DockerfileParser(fileobj=io.BytesIO(text), env_replace=False)
    return [(step["instruction"], step["value"]) for step in parser.structure]


def test_both_formats_do_the_same(made):
    """Every command of the one is in the other, but for the user, whom Apptainer does not have."""
    runs = [value for kind, value in steps(made) if kind == "RUN"]
    commands = [command.strip() for run in runs for command in run.split(" && ")]
    definition = " ".join(recipe.render(made, "apptainer").split())
    missing = [c for c in commands if " ".join(c.split()) not in definition]
    assert all(command.startswith("useradd") for command in missing), missing


def test_an_image_is_built_tested_and_then_run_by_a_plain_user(made):
    found = steps(made)
    build, run = (i for i, (kind, _) in enumerate(found) if kind == "FROM")
    smoke = next(i for i, (kind, value) in enumerate(found) if "hvd smoke" in value)
    assert build < smoke < run
    # in the image that runs: the user first, and then the test as that user
    kinds = [kind for kind, _ in found[run:]]
    assert ("USER", "1000") in found and kinds.index("USER") < len(kinds) - 2
    assert "program.py" in found[-2][1] and found[-2][0] == "RUN"
    test = [
        text for stage, name, text in sections(recipe.render(made, "apptainer")) if name == "test"
    ]
    assert len(test) == 1 and "program.py" in test[0] and "set -e" in test[0]


def test_every_base_image_and_package_has_a_version(made):
    for kind, value in steps(made):
        if kind == "FROM":
            assert re.search(r":[\w.-]*\d+\.\d+|@sha256:", value), value
            assert not value.partition(" ")[0].endswith(":latest")
        if "pip install" in value:
            assert "==" in value, value


@pytest.mark.parametrize(("mpi", "needed"), [("openmpi", True), ("mpich", False)])
def test_open_mpi_has_the_ssh_that_it_wants(mpi, needed):
    text = recipe.render(plan.make(environment.load("local-hvd"), mpi), "containerfile")
    run = text.rpartition("FROM ")[2]
    assert ("openssh-client" in run) == needed


def test_the_files_that_it_copies_are_there_and_tracked():
    listed = subprocess.run(
        ["git", "-C", paths.ROOT, "ls-files", *plan.files()], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    for name in plan.files():
        assert any(f.startswith(name) for f in listed.stdout.splitlines()), name


def test_a_site_gives_the_processor_the_gpus_and_the_abi():
    made = plan.make(environment.load("stampede3-hvd"))
    assert (made.mpi, made.gpu) == ("mpich", True)  # Intel MPI's
    assert "target=sapphirerapids" in made.spec and "cuda_arch=90" in made.spec
    assert "os=" not in made.spec
    assert plan.make(environment.load("alpha-hvd")).mpi == "openmpi"


def test_every_abi_has_a_pinned_mpi():
    assert set(pins.versions().container.mpi) == set(plan.ABI)


@pytest.mark.parametrize("name", environment.names())
def test_every_environment_has_an_image_or_a_reason(name):
    try:
        made = plan.make(environment.load(name))
    except HvdError as error:
        assert error.remedy or "see " in error.message or "use " in error.message, error.message
    else:
        assert recipe.render(made, "apptainer") and recipe.render(made, "containerfile")


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("", {"mpi": "lam"}, "--mpi: no ABI is called 'lam'"),
        ("", {"target": "z80"}, "--target: archspec knows no processor called 'z80'"),
        ("", {"target": "power9le"}, "no wheels for ppc64le"),
        (CUDA.replace("pytorch", "pytorch,tensorflow"), {}, "no tensorflow for CUDA is pinned"),
        (CUDA.replace("cuda_arch=80,90", ""), {}, "requires a GPU architecture"),
        (CUDA.replace("+cuda~rocm", "~cuda+rocm"), {}, "an image with +rocm cannot be made"),
        ("py-horovod@9 frameworks:=pytorch", {}, "the recipe has no py-horovod@9"),
        ("py-horovod@0.28.1 frameworks:=mxnet", {}, "no version of mxnet is pinned"),
        # with the pinned PyTorch, where the recipe has the last word
        ("py-horovod@0.20.3 +mpi~gloo frameworks:=tensorflow", {}, "does not support TensorFlow"),
    ],
)
def test_what_cannot_be_is_one_clear_error(derived, spec, arguments, message):
    with pytest.raises(HvdError) as raised:
        plan.make(derived("local-hvd", spec), **arguments)
    assert message in raised.value.message


def test_the_command_writes_a_file_or_standard_output(tmp_path, capsys):
    file = tmp_path / "hvd.def"
    apptainer = container.Format.apptainer
    container.container("local-hvd", apptainer, file, "", "", "")
    capsys.readouterr()
    container.container("local-hvd", apptainer, None, "", "", "")
    assert capsys.readouterr().out == file.read_text()
    assert file.read_text().startswith("# Made by ./hvd container local-hvd.")
