"""Horovod's own tests in a cell: which are run, and what counts."""

from __future__ import annotations

import pathlib

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, examples, upstream

matrix = definition.load()
REPORT = """<testsuites><testsuite>{}</testsuite></testsuites>"""


def junit(**came):
    """JUnit's XML of tests by name: ``passed``, or the tag of what came of it."""
    cases = [
        f'<testcase classname="test_torch.TorchTests" name="{name}">'
        + ("" if tag == "passed" else f"<{tag}/>")
        + "</testcase>"
        for name, tag in came.items()
    ]
    return REPORT.format("".join(cases))


def test_a_test_of_horovod_counts_as_the_rank_where_it_came_off_worst():
    first = junit(a="passed", b="skipped", c="passed", d="failure", e="skipped")
    second = junit(a="passed", b="passed", c="error", d="passed", e="skipped")
    counts = upstream.count([first, second], ["TorchTests::d"])
    assert counts.numbers == {"skipped": 1, "passed": 2, "failed": 2}
    assert counts.unexpected == ["TorchTests::c"]
    assert upstream.count([junit(), junit()], []).unexpected


def test_horovod_s_tests_are_those_of_the_release_and_the_framework():
    suite = upstream.suite(matrix.upstream, "0.28.1", ("tensorflow", "keras"))
    assert suite.files == ("test_tensorflow.py", "test_tensorflow2_keras.py")
    assert len(suite.source.commit) == 40 and suite.source.version == "v0.28.1"
    assert not upstream.suite(matrix.upstream, "0.27.0", ("pytorch",))
    assert not upstream.suite(matrix.upstream, "0.28.1", ("mxnet",))


def test_every_rank_must_come_to_the_end_of_horovod_s_tests(tmp_path, monkeypatch):
    def run(command, cwd=None, **_):
        commands.append(list(map(str, command)))
        for rank in range(ranks if cwd else 0):
            (cwd / f"{rank}.xml").write_text(junit(a="passed"))

    monkeypatch.setattr(upstream.process, "run", run)
    monkeypatch.setattr(upstream.clone, "ensure", lambda *_: None)
    monkeypatch.setattr(upstream, "find_program", lambda target, name: f"/bin/{name}")
    target = examples.Target(pathlib.Path("/python"), {"PATH": "/bin"})
    suite = upstream.suite(matrix.upstream, "0.28.1", ("pytorch",))
    commands, ranks = [], 2
    found = dict(upstream.run(suite, target, "+mpi+gloo", tmp_path, tmp_path / "log"))
    assert list(found) == ["test_torch.py, mpirun", "test_torch.py, horovodrun --gloo"]
    assert commands[1][:3] == ["/bin/mpirun", "-np", "2"]
    ranks = 1
    with pytest.raises(HvdError, match="1 of 2 ranks came to their end"):
        list(upstream.run(suite, target, "~mpi+gloo", tmp_path, tmp_path / "log"))
