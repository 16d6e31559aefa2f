"""`./hvd container`: what goes into an image, how it is written down, and what is refused."""

import io
import pathlib
import re
import subprocess
import sys

import pytest
from dockerfile_parse import DockerfileParser

from hvd.cli import container
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver.container import plan, recipe
from hvd.model import environment
from hvd.model.versions import pinned

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
def made(request):
    name, arguments, spec = IMAGES[request.param]
    return plan.make(load(name, spec), **arguments)


def load(name, spec):
    base = environment.load(name)
    return environment.derive(base, spec) if spec else base


def lint(*command):
    """Run a linter of the test requirements, which is beside the interpreter."""
    command = [pathlib.Path(sys.executable).with_name(command[0]), *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def sections(definition):
    """The sections of an Apptainer definition: name and text of each."""
    parts = re.split(r"^(?=%|BootStrap:)", definition, flags=re.MULTILINE)
    return [part[1:].split("\n", 1) for part in parts if part.startswith("%")]


def steps(made):
    """The instructions of a Containerfile: name and arguments of each."""
    text = recipe.render(made, "containerfile").encode()
    parser = DockerfileParser(fileobj=io.BytesIO(text), env_replace=False)
    return [(step["instruction"], step["value"]) for step in parser.structure]


def test_linters_find_no_fault(made, tmp_path):
    file = tmp_path / "Containerfile"
    file.write_text(recipe.render(made, "containerfile"))
    lint("hadolint", "--no-color", file)
    for number, (name, text) in enumerate(sections(recipe.render(made, "apptainer"))):
        if name in ("post", "test", "environment", "runscript"):
            file = tmp_path / f"{number}.sh"
            file.write_text(text)
            lint("shellcheck", "--shell=sh", "--exclude=SC1091", file)


def test_both_formats_do_the_same(made):
    """Each command of one is in the other, but for the user, whom Apptainer does not have."""
    runs = [value for kind, value in steps(made) if kind == "RUN"]
    commands = [" ".join(command.split()) for run in runs for command in run.split(" && ")]
    definition = " ".join(recipe.render(made, "apptainer").split())
    missing = [command for command in commands if command not in definition]
    assert all(command.startswith("useradd") for command in missing), missing


def test_an_image_is_built_tested_and_then_run_by_a_plain_user(made):
    found = steps(made)
    build, run = (i for i, (kind, _) in enumerate(found) if kind == "FROM")
    smoke = next(i for i, (_, value) in enumerate(found) if "hvd smoke" in value)
    assert build < smoke < run
    # in the image that runs, as its user
    (user,) = (i for i, step in enumerate(found) if step == ("USER", "1000"))
    (test,) = (i for i, step in enumerate(found) if i > run and "program.py" in step[1])
    assert found[test][0] == "RUN" and run < user < test
    (test,) = (t for name, t in sections(recipe.render(made, "apptainer")) if name == "test")
    assert "program.py" in test and "set -e" in test


def test_every_base_image_and_package_has_a_version(made):
    for kind, value in steps(made):
        if kind == "FROM":
            assert re.search(r":[\w.-]*\d+\.\d+|@sha256:", value), value
        if "pip install" in value:
            assert "==" in value, value


@pytest.mark.parametrize(("mpi", "needed"), [("openmpi", True), ("mpich", False)])
def test_open_mpi_has_the_ssh_that_it_wants(mpi, needed):
    text = recipe.render(plan.make(environment.load("local-hvd"), mpi), "containerfile")
    run = text.rpartition("FROM ")[2]
    assert ("openssh-client" in run) == needed


def test_the_files_that_it_copies_are_there_and_tracked():
    listed = subprocess.run(
        ["git", "-C", paths.ROOT, "ls-files", *plan.FILES], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    for name in plan.FILES:
        assert any(f.startswith(name) for f in listed.stdout.splitlines()), name


def test_a_site_gives_the_processor_the_gpus_and_the_abi():
    made = plan.make(environment.load("stampede3-hvd"))
    assert made.mpi == "mpich"  # Intel MPI's
    assert made.images == pinned().container.images["cuda"]
    assert "target=sapphirerapids" in made.spec and "cuda_arch=90" in made.spec
    assert "os=" not in made.spec
    assert plan.make(environment.load("capella-hvd")).mpi == "openmpi"


def test_every_abi_has_a_pinned_mpi():
    assert set(pinned().container.mpi) == set(plan.ABI)


@pytest.mark.parametrize("name", environment.names())
def test_every_environment_has_an_image_or_a_reason(name):
    try:
        made = plan.make(environment.load(name))
    except HvdError as error:
        assert error.remedy or "see " in error.message or "use " in error.message, error.message
    else:
        assert recipe.render(made, "apptainer") and recipe.render(made, "containerfile")


@pytest.mark.parametrize(
    ("spec", "arguments", "named"),
    [
        ("", {"mpi": "lam"}, "--mpi: no ABI is called 'lam'"),
        ("", {"target": "z80"}, "'z80'"),
        ("", {"target": "power9le"}, "ppc64le"),
        (CUDA.replace("pytorch", "pytorch,tensorflow"), {}, "tensorflow for CUDA"),
        (CUDA.replace("cuda_arch=80,90", ""), {}, "GPU architecture"),
        (CUDA.replace("+cuda~rocm", "~cuda+rocm"), {}, "+rocm"),
        ("py-horovod@9 frameworks:=pytorch", {}, "py-horovod@9"),
        ("py-horovod@0.28.1 frameworks:=mxnet", {}, "mxnet"),
        # with the pinned PyTorch, where the recipe has the last word
        ("py-horovod@0.20.3 +mpi~gloo frameworks:=tensorflow", {}, "TensorFlow"),
    ],
)
def test_what_cannot_be_built_is_one_error(spec, arguments, named):
    with pytest.raises(HvdError, match=re.escape(named)):
        plan.make(load("local-hvd", spec), **arguments)


def test_the_command_writes_a_file_or_standard_output(tmp_path, capsys):
    file = tmp_path / "hvd.def"
    apptainer = container.Format.apptainer
    container.container("local-hvd", apptainer, file, "", "", "")
    capsys.readouterr()
    container.container("local-hvd", apptainer, None, "", "", "")
    assert capsys.readouterr().out == file.read_text()
    assert file.read_text().startswith("# Made by ./hvd container local-hvd.")
