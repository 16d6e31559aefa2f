"""./hvd wheel: Horovod for pip, in another environment with the same frameworks."""

import json
import os
import pathlib
import sys
import zipfile

from elftools.elf.elffile import ELFFile

from hvd.smoke.launch import LAUNCHERS, Target, find_program
from hvd.smoke.run import run_launcher
from tests.checkout import run


def test_a_wheel_passes_the_smoke_test_elsewhere(built_horovod, tmp_path):
    """In a virtual environment that was never built in."""
    built_horovod.hvd("wheel", "--to", tmp_path / "wheels")
    (wheel,) = (tmp_path / "wheels").iterdir()
    ours = built_horovod.target
    venv = tmp_path / "venv"
    run([ours.python, "-m", "venv", "--without-pip", venv])
    python = venv / "bin" / "python"
    (place,) = venv.glob("lib/python3*/site-packages")
    # the frameworks, which the machine has
    (pth,) = ours.python.parents[1].glob("lib/python3*/site-packages/hvd-frameworks.pth")
    (place / pth.name).write_bytes(pth.read_bytes())
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-index"]
    run([*install, "--find-links", wheel.parent, f"horovod=={wheel.name.split('-')[1]}"])
    path = f"{python.parent}:{ours.environment['PATH']}"
    mpi = pathlib.Path(find_program(ours, "mpirun")).resolve().parents[1]
    libraries = os.pathsep.join([str(mpi / "lib"), ours.environment.get("LD_LIBRARY_PATH", "")])
    variables = {"PATH": path, "VIRTUAL_ENV": str(venv), "LD_LIBRARY_PATH": libraries}
    target = Target(python, {**ours.environment, **variables})
    where = "import horovod.torch.mpi_ops as ops; print(ops.__file__)"
    assert str(place) in run([python, "-c", where], env=target.environment)
    for launcher in (LAUNCHERS[0], LAUNCHERS[2]):
        out = tmp_path / launcher.controller
        out.mkdir()
        found = run_launcher(launcher, target, out, "--quick", ranks=2, timeout=120)
        assert found.passed, found.failures
    # and it has its bill of materials, and no path of this machine
    (bill,) = place.glob("horovod-*.dist-info/sboms/horovod.cdx.json")
    assert json.loads(bill.read_text())["bomFormat"] == "CycloneDX"
    state = str(ours.python.parents[3])
    for file in place.glob("horovod*/**/*"):
        assert file.is_dir() or state.encode() not in file.read_bytes(), file
    assert not any("direct_url" in name for name in zipfile.ZipFile(wheel).namelist())
    for library in place.glob("horovod/**/*.so"):
        with open(library, "rb") as stream:
            dynamic = ELFFile(stream).get_section_by_name(".dynamic")
            tags = {tag.entry.d_tag for tag in dynamic.iter_tags()}
            assert not tags & {"DT_RPATH", "DT_RUNPATH"}, library
