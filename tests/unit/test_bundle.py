"""Bundles: packing, and what install.sh refuses; tests/bundle installs one."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver import bundle as bundles
from tests.checkout import commit, run

WHEEL = "wheels/a-1.0-py3-none-any.whl"
SOURCE = "sources/archive/ab/abc.tar.gz"
FACTS = {
    "ENVIRONMENT": "local-hvd",
    "SPEC": "py-horovod@0.28.1 +mpi~gloo",
    "PAIR": "spack-1.2",
    "COMMIT": "1" * 40,
    "MACHINE": platform.machine(),
    "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
    "SITE": "",
}


def make(destination, **facts):
    """A small bundle; returns the checksum of its checksums."""
    with bundles.gathering(destination) as directory:
        for name in (WHEEL, SOURCE):
            (directory / name).parent.mkdir(parents=True)
            (directory / name).write_bytes(name.encode() * 100)
        return bundles.seal(directory, {**FACTS, **facts})


@pytest.fixture
def bundle(tmp_path):
    make(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def prefix(tmp_path):
    return tmp_path / "prefix"


def install(bundle, *arguments, **variables):
    """Exit status and output of install.sh."""
    done = subprocess.run(
        ["sh", bundle / "install.sh", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )
    return done.returncode, done.stdout


def test_a_whole_bundle_is_whole(bundle):
    assert install(bundle, "--check")[0] == 0


def test_a_flipped_bit_is_named_and_nothing_is_installed(bundle, prefix):
    changed = bytearray((bundle / WHEEL).read_bytes())
    changed[7] ^= 1
    (bundle / WHEEL).write_bytes(changed)
    status, said = install(bundle, "--prefix", prefix)
    assert status == 2 and f"{WHEEL}: FAILED" in said and SOURCE not in said
    assert "nothing was installed" in said and "hint" in said
    assert not prefix.exists()


@pytest.mark.parametrize("name", ["bundle.env", "install.sh", "SHA256SUMS"])
def test_no_file_is_left_out_of_the_check(bundle, name):
    text = (bundle / name).read_text()
    (bundle / name).write_text(text.replace("a", "b", 1) if name == "SHA256SUMS" else f"{text}\n")
    assert install(bundle, "--check")[0] == 2


def test_what_was_added_or_removed_is_named(bundle):
    (bundle / "wheels" / "evil-9.whl").write_text("x")
    status, said = install(bundle, "--check")
    assert status == 2 and "    wheels/evil-9.whl\n" in said
    (bundle / WHEEL).unlink()
    status, said = install(bundle, "--check")
    assert status == 2 and f"{WHEEL}: FAILED open or read" in said


@pytest.mark.parametrize(
    ("facts", "named"), [({"MACHINE": "ppc64le-of-old"}, "ppc64le"), ({"PYTHON": "3.99"}, "3.99")]
)
def test_another_machine_is_refused(tmp_path, prefix, facts, named):
    make(tmp_path / "bundle", **facts)
    status, said = install(tmp_path / "bundle", "--prefix", prefix)
    assert status == 2 and named in said and "hint" in said
    assert not prefix.exists()


def test_a_prefix_that_cannot_be_used(bundle, prefix, tmp_path):
    (prefix / "hvd").mkdir(parents=True)
    status, said = install(bundle, "--prefix", prefix)
    assert status == 2 and f"{prefix}/hvd" in said
    assert os.listdir(prefix) == ["hvd"]
    assert install(bundle, "--prefix", tmp_path / "with blank")[0] == 2


@pytest.mark.parametrize(
    ("words", "passed"),
    [([], []), (["--limit", "9", "--python", "/p"], ["--python", "/p", "--limit", "9"])],
)
def test_a_kit_for_gpus_runs_their_check(tmp_path, prefix, words, passed):
    (tmp_path / "hvd").mkdir()
    (tmp_path / "hvd" / "hvd").write_text("import sys; print('ran', *sys.argv[1:])")
    commit(tmp_path / "hvd")
    with bundles.gathering(tmp_path / "kit") as directory:
        for name in ("sources", "wheels"):
            (directory / name).mkdir()
        run(["git", "clone", "--quiet", "--bare", tmp_path / "hvd", directory / "git" / "hvd.git"])
        kit = {"COMMAND": "gpu-check", "SITE": ""}
        bundles.seal(directory, {**kit, **{name: FACTS[name] for name in ("MACHINE", "PYTHON")}})
    status, said = install(tmp_path / "kit", "--prefix", prefix, *words)
    assert status == 0, said
    asked = ["ran", "gpu-check", "--report", f"{prefix}/gpu-check.json", *passed]
    assert said.splitlines()[-1] == " ".join(asked)


@pytest.mark.parametrize("arguments", [[], ["--prefix"], ["--nonsense"]])
def test_wrong_usage(bundle, arguments):
    assert install(bundle, *arguments)[0] == 2


def test_without_git_it_is_named(bundle, prefix, tmp_path):
    for program in ("sh", "dirname", "cat", "sed"):
        (tmp_path / program).symlink_to(shutil.which(program))
    status, said = install(bundle, "--prefix", prefix, PATH=str(tmp_path))
    assert status == 2 and "git is not on PATH" in said


@pytest.mark.parametrize("end", [".tar", ".tar.gz", ".tgz"])
def test_an_archive_has_one_directory(tmp_path, end):
    make(tmp_path / f"hvd-1{end}")
    assert os.listdir(tmp_path) == [f"hvd-1{end}"]
    with tarfile.open(tmp_path / f"hvd-1{end}") as archive:
        archive.extractall(tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["hvd-1"]
    assert install(tmp_path / "out" / "hvd-1", "--check")[0] == 0


def test_the_checksum_of_all_checksums_is_returned(tmp_path):
    digest = make(tmp_path / "bundle")
    sums = tmp_path / "bundle" / "SHA256SUMS"
    said = subprocess.run(["sha256sum", sums], capture_output=True, text=True).stdout
    assert said.split()[0] == digest


def test_nothing_is_overwritten_and_no_half_bundle_is_left(tmp_path):
    (tmp_path / "there").write_text("mine")
    with pytest.raises(HvdError, match=str(tmp_path / "there")):
        make(tmp_path / "there")
    with pytest.raises(KeyboardInterrupt), bundles.gathering(tmp_path / "new"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["there"]


def test_only_a_commit_is_bundled(monkeypatch, hvd, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    # refused before anything is done
    assert hvd("bundle", "--to", tmp_path / "bundle").status == 2 and not list(tmp_path.iterdir())
    with pytest.raises(HvdError, match="is no git checkout"):
        bundles.commit()
    git = ["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "file").write_text("x")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch("[0-9a-f]{40}", bundles.commit())
    (tmp_path / "other").write_text("x")
    with pytest.raises(HvdError, match="other$"):
        bundles.commit()


def test_install_sh_sets_what_was_tried():
    """pip could install from the wheels with these settings."""
    text = bundles.INSTALLER.read_text()
    for name, value in bundles.offline(pathlib.Path("/store")).items():
        assert f"{name}={value}" in text or (value == "/store" and f"{name}='$prefix" in text)


def test_install_sh_is_clean():
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    # variables of files that are sourced, and $PYTHON beside $python
    done = subprocess.run(
        [shellcheck, "--exclude=SC1091,SC2153", bundles.INSTALLER], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
