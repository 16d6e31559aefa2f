"""What ./hvd activate writes, sourced by real shells from an empty environment."""

import subprocess

import pytest

from hvd.deliver import activation
from hvd.deliver.activation import Plan
from hvd.model.built import Modification
from tests import shells

HARD = "a b'c\"d$HOME!x `id` \\ \\! %s *\n~l2;&|<>(){}[]#?^é\\\n end'"
PLAN = Plan(
    (),
    (
        Modification("set", "HARD", HARD),
        Modification("set", "EMPTY", ""),
        Modification("unset", "GONE", ""),
        Modification("unset", "GONE_ALREADY", ""),
        Modification("prepend", "MANPATH", "/m n/a:/b:"),
        Modification("prepend", "XDG_DATA_DIRS", "/x'$1!:/y"),
        Modification("prepend", "LD_LIBRARY_PATH", "/l1:/l2"),
        Modification("prepend", "CMAKE_PREFIX_PATH", "/c"),
        Modification("prepend", "PATH", "/p q:/r!"),
    ),
    "a test",
)
BEFORE = {
    "PATH": "/usr/bin:/bin",
    "HARD": "old $x!`y\" 'z\n\\",
    "EMPTY": "not empty",
    "GONE": "was! it",
    "XDG_DATA_DIRS": "",
    "LD_LIBRARY_PATH": "/mine:/with blank",
    "OTHER": "x",
}
#: Prints the environment, nothing of it lost, and a line that ends it.
SHOW = "/usr/bin/env -0\necho @@"


@pytest.fixture(params=shells.FILES)
def shell(request):
    return request.param


@pytest.fixture
def ran(shell, tmp_path):
    """A function that runs lines in the shell with ``before`` alone as its environment."""
    words = shells.command(shell)
    file = tmp_path / shells.FILES[shell]

    def run(lines, plan=PLAN, before=BEFORE, warning=""):
        file.write_text(activation.render(plan, file.name))
        program = "\n".join(line.replace("FILE", shells.source(shell, file)) for line in lines)
        done = subprocess.run([*words, "-c", program], env=before, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if warning:
            # csh can only write it to its standard output
            assert warning in done.stdout + done.stderr
        else:
            assert done.stderr == ""
        return done.stdout

    return run


def shown(text):
    """The environments that each SHOW printed."""
    return [shells.variables(part) for part in text.split("@@\n")[:-1]]


def changed(found):
    """The variables in ``found`` that are not the shell's own."""
    names = {*BEFORE, *(change.name for change in PLAN.changes)}
    return {name: value for name, value in found.items() if name in names}


def test_variables_are_as_planned_and_restored(ran):
    lines = [SHOW, "FILE", SHOW, "FILE", SHOW, "hvd_deactivate", SHOW]
    before, after, again, back = shown(ran(lines))
    wanted = PLAN.applied(BEFORE)
    assert wanted["MANPATH"] == "/m n/a:/b:" and wanted["XDG_DATA_DIRS"] == "/x'$1!:/y"
    assert wanted["LD_LIBRARY_PATH"] == "/l1:/l2:/mine:/with blank"
    assert changed(after) == changed(again) == wanted
    assert back == before


def test_nothing_is_left_in_the_shell(ran):
    assert "_hvd" not in ran(["FILE", "hvd_deactivate", "set"])


def test_from_an_empty_environment(ran, shell):
    # the shells set variables of their own in it; PATH is the one that matters
    before, after, back = shown(ran([SHOW, "FILE", SHOW, "hvd_deactivate", SHOW], before={}))
    assert after["PATH"].startswith("/p q:/r!")
    if shell == "dash":  # it exports its PATH for good
        back.pop("PATH")
    assert back == before


def test_modules_are_loaded_once_and_unloaded(ran, shell, tmp_path):
    log = tmp_path / "log"
    plan = Plan(("gcc/12.2", "nccl/2.15.5-ofi", "cuda"), PLAN.changes, "a test")
    module = {
        "activate.sh": f'module() {{ echo "$*" >> {log}; }}',
        "activate.csh": f"alias module 'sh -c \"echo \\!* >> {log}\"'",
        "activate.fish": f"function module; echo $argv >> {log}; end",
    }[shells.FILES[shell]]
    before = {**BEFORE, "LOADEDMODULES": "base:gcc/12.2:cuda/12.4"}
    first, back = shown(ran([module, SHOW, "FILE", "hvd_deactivate", SHOW], plan, before))
    assert log.read_text() == "load nccl/2.15.5-ofi\nunload nccl/2.15.5-ofi\n"
    assert back == first


def test_a_missing_module_command_is_a_warning(ran):
    plan = Plan(("gcc/12.2",), PLAN.changes, "a test")
    said = ran(["FILE", SHOW], plan, {"PATH": "/usr/bin:/bin"}, warning="to load gcc/12.2 with")
    assert "PATH=/p q:/r!:/usr/bin:/bin" in said


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"], indirect=True)
def test_a_module_command_that_is_not_there_yet(ran, tmp_path):
    """Lmod and Environment Modules both say where they are: a kernel's shell has the variable."""
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "sh").write_text('module() { echo "module $*"; }\n')
    plan = Plan(("gcc/12.2",), PLAN.changes, "a test")
    said = ran(["FILE"], plan, {"PATH": "/usr/bin:/bin", "MODULESHOME": str(tmp_path)})
    assert said == "module load gcc/12.2\n"
