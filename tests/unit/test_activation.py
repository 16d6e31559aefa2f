"""./hvd activate: what is planned, and activate.sh in real shells from a small environment."""

import shutil
import subprocess

import pytest

from hvd.core.errors import HvdError
from hvd.deliver import activation
from hvd.deliver.activation import Plan
from hvd.model.built import Modification
from tests import builds, debian

HARD = "a b'c\"d$HOME!x `id` \\ \\! %s *\n~l2;&|<>(){}[]#?^é\\\n end'"
PLAN = Plan(
    ("gcc/12.2", "nccl/2.15.5-ofi", "cuda"),
    (
        Modification("set", "HARD", HARD),
        Modification("set", "EMPTY", ""),
        Modification("prepend", "MANPATH", "/m n/a:/b:"),
        Modification("prepend", "XDG_DATA_DIRS", "/x'$1!:/y"),
        Modification("prepend", "LD_LIBRARY_PATH", "/l1:/l2"),
        Modification("prepend", "PATH", "/p q:/r!"),
    ),
    "a test",
)
BEFORE = {
    "PATH": "/usr/bin:/bin",
    "HARD": "old $x!`y\" 'z\n\\",
    "EMPTY": "not empty",
    "XDG_DATA_DIRS": "",
    "LD_LIBRARY_PATH": "/mine:/with blank",
    "LOADEDMODULES": "base:gcc/12.2:cuda/12.4",
}


def test_lists_and_values():
    """System directories are left out, and of equal entries the last one counts."""
    paths = ("/a", "/usr/bin", "/b", "/usr/local/", "/a")
    changes = (
        *(Modification("prepend", "PATH", path) for path in paths),
        Modification("prepend", "MANPATH", "/m"),
        Modification("append", "ACLOCAL_PATH", "/late"),
        Modification("prepend", "ACLOCAL_PATH", "/early"),
        Modification("append", "LDFLAGS", "-lz", " "),
        Modification("set", "CUDA_PATH", "none"),
    )
    found = activation.plan(builds.record(changes=changes))
    assert found.applied({"PATH": "/mine", "PYTHONHOME": "/other", "ACLOCAL_PATH": ""}) == {
        "ACLOCAL_PATH": "/early:/late",
        "MANPATH": "/m:",
        "PATH": "/a:/b:/mine",
        "CUDA_PATH": "none",
        "HVD_ACTIVE": "local-hvd-pip",
        "LDFLAGS": "-lz",
        "PYTHONHOME": "",
        "PYTHONNOUSERSITE": "1",
    }
    with pytest.raises(HvdError, match="no bin directory"):
        activation.plan(builds.record(changes=changes[1:2]))


@pytest.fixture(params=["dash", "bash", "zsh"])
def run(request, tmp_path):
    """A function that runs lines in a shell: what each ``SHOW`` printed, and the rest."""
    program = shutil.which(request.param)
    program = program or f"{debian.unpacked(request.param)}/bin/{request.param}"
    words = [program, *{"bash": ["--norc"], "zsh": ["-f"]}.get(request.param, []), "-euc"]
    source = f". {activation.write(PLAN, tmp_path)}"

    def run_(*lines, before=BEFORE):
        text = (
            "\n".join(lines).replace("SOURCE", source).replace("SHOW", "/usr/bin/env -0;echo @@")
        )
        done = subprocess.run([*words, text], env=before, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        *shown, rest = done.stdout.split("@@\n", text.count("echo @@"))
        return [dict(e.split("=", 1) for e in part.split("\0") if e) for part in shown], rest

    return run_


def test_variables_and_modules_are_set_and_restored(run, tmp_path):
    log = tmp_path / "log"
    module = f'module() {{ echo "$*" >> {log}; }}'
    lines = [module, "SHOW", "SOURCE", "SHOW", "SOURCE", "SHOW", "hvd_deactivate", "SHOW", "set"]
    (before, after, again, back), rest = run(*lines)
    wanted = PLAN.applied(BEFORE)
    assert wanted["MANPATH"] == "/m n/a:/b:" and wanted["XDG_DATA_DIRS"] == "/x'$1!:/y"
    assert wanted["LD_LIBRARY_PATH"] == "/l1:/l2:/mine:/with blank"
    assert after == again and {name: after.get(name) for name in wanted} == wanted
    # zsh exports an empty MANPATH for good
    assert {name: value for name, value in back.items() if value or name in before} == before
    assert log.read_text() == 2 * "load nccl/2.15.5-ofi\nunload nccl/2.15.5-ofi\n"
    assert "_hvd" not in rest


def test_a_module_command_that_is_not_there_yet(run, tmp_path):
    """Lmod and Environment Modules both say where they are: a kernel's shell has the variable."""
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "sh").write_text('module() { export LOADED="${LOADED-}$*;"; }\n')
    ((after,), _) = run("SOURCE", "SHOW", before={"MODULESHOME": str(tmp_path)})
    assert after["LOADED"] == "load gcc/12.2;load nccl/2.15.5-ofi;load cuda;"
