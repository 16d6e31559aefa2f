"""Horovod's own tests in a cell: which are run, and what counts."""

from __future__ import annotations

import pathlib
import types

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, ranks, upstream
from hvd.matrix.ranks import Ranks

TESTS = definition.load().upstream


def junit(**outcomes):
    """JUnit's XML of tests by name: ``passed``, or the tag of another outcome."""
    cases = [
        f'<testcase classname="test_torch.TorchTests" name="{name}">'
        + ("" if tag == "passed" else f"<{tag}/>")
        + "</testcase>"
        for name, tag in outcomes.items()
    ]
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def test_a_test_of_horovod_counts_as_on_its_worst_rank():
    first = junit(a="passed", b="skipped", c="passed", d="failure", e="skipped")
    second = junit(a="passed", b="passed", c="error", d="passed", e="skipped")
    counts, unexpected = upstream.count([first, second], ["TorchTests::d"])
    assert counts == {"skipped": 1, "passed": 2, "failed": 2}
    assert unexpected == ["TorchTests::c"]
    # none was collected
    assert upstream.count([junit(), junit()], [])[1]


@pytest.mark.parametrize(
    ("release", "frameworks", "files"),
    [
        ("0.28.1", ("tensorflow", "keras"), ["test_tensorflow.py", "test_tensorflow2_keras.py"]),
        ("0.28.1", ("mxnet",), []),
        ("0.27.0", ("pytorch",), []),
    ],
)
def test_horovod_s_tests_are_those_of_the_release_and_the_framework(release, frameworks, files):
    assert upstream.files(TESTS, release, frameworks) == files


def test_every_rank_must_come_to_the_end_of_horovod_s_tests(tmp_path, monkeypatch):
    def run(command, cwd=None, **_):
        commands.append(list(map(str, command)))
        for rank in range(finished if cwd else 0):
            (cwd / f"{rank}.xml").write_text(junit(a="passed"))
        return types.SimpleNamespace(output="")

    monkeypatch.setattr(upstream.process, "run", run)
    monkeypatch.setattr(upstream.clone, "ensure", lambda *_: None)
    monkeypatch.setattr(ranks, "find_program", lambda target, name: f"/bin/{name}")
    target = ranks.Target(pathlib.Path("/python"), {"PATH": "/bin"})
    commands, finished = [], 2

    def names(variants):
        on_ranks = Ranks(target, variants, tmp_path, tmp_path / "log")
        return [found[0] for found in upstream.run(TESTS, "0.28.1", ["test_torch.py"], on_ranks)]

    assert names("+mpi+gloo") == ["test_torch.py, mpirun", "test_torch.py, horovodrun --gloo"]
    assert commands[1][:3] == ["/bin/mpirun", "-np", "2"]
    finished = 1
    with pytest.raises(HvdError, match="1 of 2 ranks"):
        names("~mpi+gloo")
