"""A bundle of `local-hvd`, installed where there is no network, to a passed two-rank test."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.conftest import copy_checkout, unmet

#: The loopback of a network namespace: ranks on one machine talk over it, and over nothing else.
ALONE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.fixture(scope="module")
def bundle(request, tmp_path_factory):
    """What `./hvd bundle` wrote, of a commit."""
    if not shutil.which("ip"):
        unmet(request.config, "bundle", "ip is not on PATH: the package iproute2")
    if subprocess.run([*ALONE, "true"]).returncode:
        unmet(request.config, "bundle", "no network namespace can be made here")
    scratch = tmp_path_factory.mktemp("bundle")
    checkout = copy_checkout(scratch / "hvd")
    git = ["git", "-C", checkout.root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    done = checkout.hvd("bundle", "local-hvd", "--to", scratch / "it")
    if done.returncode == 10:
        unmet(request.config, "bundle", done.stdout)
    assert done.returncode == 0, done.stdout
    yield scratch / "it"
    shutil.rmtree(scratch)  # gigabytes


def install(bundle, home, *arguments):
    """Status and output of install.sh, with this Python first and nothing else of the caller's."""
    home.mkdir(exist_ok=True)
    path = f"{pathlib.Path(os.path.realpath(sys.executable)).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    done = subprocess.run(
        [*ALONE, bundle / "install.sh", *map(str, arguments)],
        env={"HOME": str(home), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_a_flipped_bit_of_a_wheel_is_named(bundle, tmp_path):
    wheel = next((bundle / "wheels").glob("torch-*.whl"))
    position = wheel.stat().st_size // 2
    with open(wheel, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))
    try:
        status, said = install(bundle, tmp_path / "home", "--prefix", tmp_path / "prefix")
    finally:
        with open(wheel, "r+b") as file:
            file.seek(position)
            file.write(bytes([byte]))
    assert status == 2 and f"wheels/{wheel.name}: FAILED" in said, said
    assert not (tmp_path / "prefix").exists()


def test_it_reaches_a_passed_two_rank_test_without_a_network(bundle, tmp_path):
    prefix, home = tmp_path / "prefix", tmp_path / "home"
    status, said = install(bundle, home, "--prefix", prefix)
    assert status == 0, said
    report = json.loads((prefix / "hvd/.hvd/reports/local-hvd-spack/report.json").read_text())
    checks = {check["name"]: check["passed"] for check in report["checks"]}
    assert set(checks.values()) == {True} and {"mpirun", "horovodrun --gloo"} <= set(checks)
    facts = (bundle / "bundle.env").read_text()
    assert f"COMMIT={report['commits']['hvd']}\n" in facts
    # all of it is below the prefix
    assert not (home / ".cache" / "hvd").exists() and not (home / ".spack").exists()
    # and once more, as after an interruption: nothing is built again
    status, said = install(bundle, home, "--prefix", prefix, "--build-only")
    assert status == 0 and "0 fetched, 0 to build" in said, said
