"""Several environments are solved at a time, each in a process of its own."""

import shutil

import pytest

from hvd.core import paths
from hvd.core.errors import HvdError
from hvd.core.run import StageFailed
from hvd.engines import engine_spack, solve_all
from hvd.engines.pipeline import Options
from hvd.model import environment
from hvd.solve import kept
from tests.unit.building import FakeSpack, site_solution

NAMES = ["summit-hvd", "perlmutter-hvd"]


@pytest.fixture
def fake(workplace, state, monkeypatch):
    """A Spack that solves `NAMES`, in a copy of the environments."""
    copied = workplace / "environments"
    left = shutil.ignore_patterns("spack.lock", ".spack-env", "externals.yaml")
    shutil.copytree(paths.ENVIRONMENTS, copied, symlinks=True, ignore=left)
    monkeypatch.setattr(paths, "ENVIRONMENTS", copied)
    state.mkdir()
    made = FakeSpack(workplace / "spack")
    made.let(locks={name: site_solution(name) for name in NAMES})
    monkeypatch.setattr(engine_spack, "locate", lambda sources, task: made.spack)
    return made


def test_all_are_solved_in_order(fake):
    found = solve_all.run(NAMES, Options())
    assert [each.environment.name for each in found] == NAMES
    assert [each.specs for each in found] == [site_solution(name) for name in NAMES]
    # sites' environments take nothing from this machine
    assert "find" not in fake.commands()
    solve_all.run(NAMES, Options())
    assert fake.calls() == []


def test_one_that_fails_does_not_keep_the_others_from_being_solved(fake, capsys):
    fake.let(locks={NAMES[0]: site_solution(NAMES[0])}, lock=site_solution(NAMES[0]))
    with pytest.raises(StageFailed) as caught:
        solve_all.run(NAMES, Options())
    assert caught.value.status == 11 and NAMES[1] in caught.value.error.message
    said = capsys.readouterr()
    assert "perlmutter-hvd does not match its site" in said.err
    assert any(line.split()[:1] == [NAMES[0]] and " ok" in line for line in said.out.splitlines())


def test_solutions_are_kept_and_compared(fake):
    chosen = environment.load(NAMES[0])
    before = kept.load(chosen)
    with pytest.raises(HvdError, match="(?m)^-py-horovod@") as caught:
        solve_all.keep(NAMES[:1], Options(), check=True)
    assert f"{NAMES[0]}/dag.txt" in caught.value.message and kept.load(chosen) == before
    solve_all.keep(NAMES[:1], Options(), check=False)
    names = {each["name"] for each in site_solution(NAMES[0]).values()}
    assert {each.name for each in kept.load(chosen).packages} == names
    solve_all.keep(NAMES[:1], Options(), check=True)


def test_wrong_usage_is_refused_before_anything_is_solved(fake):
    with pytest.raises(HvdError, match="no-such-hvd"):
        solve_all.run([*NAMES, "no-such-hvd"], Options())
    # a solution of this machine is not kept
    with pytest.raises(HvdError, match="local-hvd"):
        solve_all.keep(["local-hvd", NAMES[0]], Options(), check=True)
    assert fake.calls() == []
