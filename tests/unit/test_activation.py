"""What makes a build usable: activate.sh in real shells, a kernel, a wheel's version."""

import json
import shutil
import subprocess

import pytest
from packaging.version import Version

from hvd.core.errors import HvdError
from hvd.deliver import activation, kernel, wheel
from hvd.deliver.activation import Plan
from hvd.model.built import Modification, Software
from tests import builds, debian
from tests.builds import record
from tests.checkout import script

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
    changes = (
        *(
            Modification("prepend", "PATH", p)
            for p in ("/a", "/usr/bin", "/b", "/usr/local/", "/a")
        ),
        Modification("append", "ACLOCAL_PATH", "/late"),
        Modification("prepend", "ACLOCAL_PATH", "/early"),
        Modification("append", "LDFLAGS", "-lz", " "),
    )
    found = activation.plan(builds.record(changes=changes))
    assert found.applied({"PATH": "/mine", "PYTHONHOME": "/other", "ACLOCAL_PATH": ""}) == {
        "ACLOCAL_PATH": "/early:/late",
        "PATH": "/a:/b:/mine",
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


def test_a_kernel_is_installed_and_replaced_and_another_s_is_not(tmp_path):
    python = script(tmp_path / "bin" / "python", 'exec "$0.real" "$@"')
    done = builds.record(changes=(Modification("prepend", "PATH", str(python.parent)),))

    def install(name="hvd-local", prefix=tmp_path, **shell):
        return kernel.install(done, name, prefix, {"PATH": "/usr/bin:/bin", **shell})

    with pytest.raises(HvdError, match="has no ipykernel") as caught:
        install()
    assert caught.value.remedy == f"{python} -m pip install ipykernel"
    script(python.with_name("python.real"))
    with pytest.raises(HvdError, match="--name: 'a b'"):
        install("a b")
    directory = [install(), install()][1]
    assert directory == tmp_path / "share" / "jupyter" / "kernels" / "hvd-local"
    content = json.loads((directory / "kernel.json").read_text())
    assert "{resource_dir}/activate.sh" in content["argv"]
    assert f"export PATH={tmp_path}/bin" in (directory / "activate.sh").read_text()
    own = install(prefix=None, XDG_DATA_HOME=str(tmp_path / "home"))
    assert own == tmp_path / "home" / "jupyter" / "kernels" / "hvd-local"
    (directory / "kernel.json").write_text("{}")
    with pytest.raises(HvdError, match=str(directory)):
        install()
    assert (directory / "kernel.json").read_text() == "{}"


CUDA = {"gpu": "cuda", "operations": ("mpi", "nccl")}
KERAS = {"frameworks": {"tensorflow": "2.15.1", "keras": "2.15.0"}}


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"frameworks": {"pytorch": "2.13.0+cpu"}}, "torch2.13.0.openmpi4.1.8"),
        ({"mpi": Software()}, "torch2.13.0.gloo"),
        ({"mpi": Software("cray-mpich", "9.1.0")}, "torch2.13.0.craympich9.1.0"),
        (KERAS, "keras2.15.0.tensorflow2.15.1.openmpi4.1.8"),
        (CUDA, "torch2.13.0.openmpi4.1.8.cuda13.0.1.nccl"),
        # the version of HIP is not known
        ({**CUDA, "gpu": "rocm"}, "torch2.13.0.openmpi4.1.8.rocm.nccl"),
        ({"operations": ("ccl",)}, "torch2.13.0.openmpi4.1.8.ccl"),
    ],
)
def test_the_local_version(tmp_path, changes, label):
    bom = tmp_path / "bom.json"
    bom.write_text(json.dumps({"components": [{"name": "cuda", "version": "13.0.1"}]}))
    assert wheel.label(record(**changes), bom) == label
    # as pip reads it
    assert Version(f"0.28.1+{label}").local == label
    gone = record(variables={"PATH": "/nowhere"}, **changes)
    with pytest.raises(HvdError, match="Horovod is not installed"):
        wheel.make(gone, bom, tmp_path / "wheels", tmp_path / "log")
    assert not (tmp_path / "wheels").exists()
