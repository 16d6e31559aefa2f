"""Bundles: what is packed, and what install.sh refuses; tests/bundle installs one for real."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile

import pytest

from hvd.cli import main as cli
from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.deliver.bundle import content, pack
from hvd.model import pins

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
    """A bundle with hardly anything in it."""
    with pack.gathering(destination) as directory:
        for name in ("wheels/a-1.0-py3-none-any.whl", "sources/archive/ab/abc.tar.gz"):
            (directory / name).parent.mkdir(parents=True)
            (directory / name).write_bytes(name.encode() * 100)
        digest = pack.seal(directory, {**FACTS, **facts})
    return digest


@pytest.fixture
def bundle(tmp_path):
    make(tmp_path / "bundle")
    return tmp_path / "bundle"


def install(bundle, *arguments, **variables):
    """Status and all that install.sh says."""
    done = subprocess.run(
        ["sh", bundle / "install.sh", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )
    return done.returncode, done.stdout


def test_a_whole_bundle_is_whole(bundle):
    assert install(bundle, "--check") == (0, "checking every file\n")


def test_a_flipped_bit_is_named_and_nothing_is_installed(bundle, tmp_path):
    wheel = bundle / "wheels" / "a-1.0-py3-none-any.whl"
    changed = bytearray(wheel.read_bytes())
    changed[7] ^= 1
    wheel.write_bytes(changed)
    status, said = install(bundle, "--prefix", tmp_path / "prefix")
    assert status == 2
    assert "wheels/a-1.0-py3-none-any.whl: FAILED" in said
    assert "abc.tar.gz" not in said
    assert "nothing was installed" in said and "hint" in said
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize("name", ["bundle.env", "install.sh", "SHA256SUMS"])
def test_no_file_is_left_out_of_the_check(bundle, name):
    text = (bundle / name).read_text()
    (bundle / name).write_text(text.replace("a", "b", 1) if name == "SHA256SUMS" else f"{text}\n")
    assert install(bundle, "--check")[0] == 2


def test_what_was_added_or_removed_is_named(bundle):
    (bundle / "wheels" / "evil-9.whl").write_text("x")
    status, said = install(bundle, "--check")
    assert status == 2 and "    wheels/evil-9.whl\n" in said
    (bundle / "wheels" / "evil-9.whl").unlink()
    (bundle / "wheels" / "a-1.0-py3-none-any.whl").unlink()
    status, said = install(bundle, "--check")
    assert status == 2 and "wheels/a-1.0-py3-none-any.whl: FAILED open or read" in said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"MACHINE": "ppc64le-of-old"}, "is for ppc64le-of-old, and this machine is"),
        ({"PYTHON": "3.99"}, "has wheels for Python 3.99, and PATH has none"),
    ],
)
def test_another_machine_is_refused(tmp_path, facts, said):
    make(tmp_path / "bundle", **facts)
    status, output = install(tmp_path / "bundle", "--prefix", tmp_path / "prefix")
    assert status == 2 and said in output and "hint" in output
    assert not (tmp_path / "prefix").exists()


def test_a_prefix_with_something_in_it_is_left_alone(bundle, tmp_path):
    (tmp_path / "prefix" / "hvd").mkdir(parents=True)
    status, said = install(bundle, "--prefix", tmp_path / "prefix")
    assert status == 2 and "is there already, from elsewhere" in said
    assert os.listdir(tmp_path / "prefix") == ["hvd"]
    status, said = install(bundle, "--prefix", tmp_path / "with blank")
    assert status == 2 and "has a blank or a quote in it" in said


@pytest.mark.parametrize("arguments", [[], ["--prefix"], ["--nonsense"]])
def test_wrong_usage(bundle, arguments):
    assert install(bundle, *arguments)[0] == 2


def test_without_git_it_is_named(bundle, tmp_path):
    for program in ("sh", "dirname", "cat", "sed"):
        (tmp_path / program).symlink_to(shutil.which(program))
    status, said = install(bundle, "--prefix", tmp_path / "prefix", PATH=str(tmp_path))
    assert status == 2 and "git is not on PATH" in said


@pytest.mark.parametrize("end", [".tar", ".tar.gz", ".tgz"])
def test_an_archive_has_one_directory(tmp_path, end):
    make(tmp_path / f"hvd-1{end}")
    with tarfile.open(tmp_path / f"hvd-1{end}") as archive:
        names = archive.getnames()
        assert {name.split("/")[0] for name in names} == {"hvd-1"}
        archive.extractall(tmp_path / "out")
    assert install(tmp_path / "out" / "hvd-1", "--check")[0] == 0
    assert sorted(os.listdir(tmp_path)) == [f"hvd-1{end}", "out"]


def test_the_checksum_of_all_checksums_is_told(tmp_path):
    digest = make(tmp_path / "bundle")
    said = subprocess.run(
        ["sha256sum", tmp_path / "bundle" / "SHA256SUMS"], capture_output=True, text=True
    ).stdout
    assert said.split()[0] == digest


def test_what_is_there_is_not_overwritten_and_no_half_bundle_is_left(tmp_path):
    (tmp_path / "there").write_text("mine")
    with pytest.raises(HvdError, match="is there already"):
        make(tmp_path / "there")
    with pytest.raises(KeyboardInterrupt), pack.gathering(tmp_path / "new"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["there"]


def test_only_a_commit_is_bundled(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    with pytest.raises(HvdError, match="is no git checkout"):
        content.commit()
    git = ["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "file").write_text("x")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    assert len(content.commit()) == 40
    (tmp_path / "other").write_text("x")
    with pytest.raises(HvdError, match="files are not as commit .* has them: other$"):
        content.commit()


def test_a_dirty_tree_is_refused_before_anything_is_done(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bundle", "--to", str(tmp_path / "bundle")])
    assert ended.value.code == 2
    assert "is no git checkout" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_install_sh_sets_is_what_was_tried():
    """The bundle was proved with these settings of pip."""
    text = pack.INSTALLER.read_text()
    for name, value in content.offline(pathlib.Path("/store")).items():
        assert f"{name}={value}" in text or (value == "/store" and f"{name}='$prefix" in text)
    assert {pair.name for pair in pins.versions().pairs} >= {FACTS["PAIR"]}


def test_install_sh_is_clean():
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    # variables of files that are sourced, and $PYTHON beside $python
    done = subprocess.run(
        [shellcheck, "--exclude=SC1091,SC2153", pack.INSTALLER], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
