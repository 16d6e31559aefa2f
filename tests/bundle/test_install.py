"""A bundle of `local-hvd`, installed where there is no network, to a passed two-rank test."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import needs
from tests.checkout import commit, copy_checkout, run

pytestmark = needs.programs("ip", "unshare")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """What `./hvd bundle` wrote, of a commit."""
    needs.namespaces()
    scratch = tmp_path_factory.mktemp("bundle")
    checkout = copy_checkout(scratch / "hvd")
    commit(checkout.root)
    command = checkout.command("bundle", "local-hvd", "--to", scratch / "it")
    done = subprocess.run(
        command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True
    )
    if done.returncode == 10:
        pytest.skip(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    yield scratch / "it"
    shutil.rmtree(scratch)  # gigabytes


def install(bundle, home, *arguments, status=0):
    """Output of install.sh, with this Python first and nothing else of the caller's."""
    home.mkdir(exist_ok=True)
    path = f"{pathlib.Path(os.path.realpath(sys.executable)).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    command = [*needs.ALONE, bundle / "install.sh", *arguments]
    return run(command, status, env={"HOME": str(home), "PATH": path})


def flip(file):
    """Change a bit in the middle of ``file``."""
    with open(file, "r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        (byte,) = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))


def test_a_flipped_bit_of_a_wheel_is_named(bundle, tmp_path):
    wheel = next((bundle / "wheels").glob("torch-*.whl"))
    flip(wheel)
    try:
        said = install(bundle, tmp_path / "home", "--prefix", tmp_path / "prefix", status=2)
    finally:
        flip(wheel)
    assert f"wheels/{wheel.name}: FAILED" in said, said
    assert not (tmp_path / "prefix").exists()


def test_it_reaches_a_passed_two_rank_test_without_a_network(bundle, tmp_path):
    prefix, home = tmp_path / "prefix", tmp_path / "home"
    install(bundle, home, "--prefix", prefix)
    report = json.loads((prefix / "hvd/.hvd/reports/local-hvd-spack/report.json").read_text())
    checks = {check["name"]: check["passed"] for check in report["checks"]}
    assert set(checks.values()) == {True} and {"mpirun", "horovodrun --gloo"} <= set(checks)
    facts = (bundle / "bundle.env").read_text()
    assert f"COMMIT={report['commits']['hvd']}\n" in facts
    # all of it is below the prefix
    assert not (home / ".cache" / "hvd").exists() and not (home / ".spack").exists()
    # and once more, as after an interruption: nothing is built again
    said = install(bundle, home, "--prefix", prefix, "--build-only")
    assert "0 fetched, 0 to build" in said, said
