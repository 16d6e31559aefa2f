"""Horovod's own tests and the examples in a cell: which are run, and what counts."""

from __future__ import annotations

import json
import os
import pathlib
import types

import pytest

from hvd.core.errors import HvdError
from hvd.matrix import definition, ranks
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
    counts, unexpected = ranks.count([first, second], ["TorchTests::d"])
    assert counts == {"skipped": 1, "passed": 2, "failed": 2}
    assert unexpected == ["TorchTests::c"]
    # none was collected
    assert ranks.count([junit(), junit()], [])[1]


@pytest.mark.parametrize(
    ("release", "frameworks", "files"),
    [
        (
            "0.28.1",
            ("tensorflow", "keras"),
            ["parallel/test_tensorflow.py", "parallel/test_tensorflow2_keras.py"],
        ),
        ("0.28.1", ("mxnet",), []),
        ("0.27.0", ("pytorch",), []),
    ],
)
def test_horovod_s_tests_are_those_of_the_release_and_the_framework(release, frameworks, files):
    assert ranks.test_files(TESTS, release, frameworks) == files


def test_every_rank_must_come_to_the_end_of_horovod_s_tests(tmp_path, monkeypatch):
    def run(command, cwd=None, **_):
        commands.append(list(map(str, command)))
        alone = str(ranks.PROGRAM) in commands[-1] and "-np" not in command
        for rank in range(finished if "-np" in command else int(alone)):
            (pathlib.Path(cwd) / f"{rank}.xml").write_text(junit(a="passed"))
        return types.SimpleNamespace(output="")

    monkeypatch.setattr(ranks.process, "run", run)
    monkeypatch.setattr(ranks.clone, "ensure", lambda *_: None)
    monkeypatch.setattr(ranks.shutil, "copytree", lambda *_: None)
    monkeypatch.setattr(ranks, "find_program", lambda target, name: f"/bin/{name}")
    target = ranks.Target(pathlib.Path("/python"), {"PATH": "/bin"})
    commands, finished = [], 2

    def names(variants):
        on_ranks = Ranks(target, variants, tmp_path, tmp_path / "log")
        files = ["parallel/test_torch.py", "single/test_run.py"]
        return [found[0] for found in ranks.run_tests(TESTS, "0.28.1", files, on_ranks)]

    launched = ["test_torch.py, mpirun", "test_torch.py, horovodrun --gloo"]
    assert names("+mpi+gloo") == [*launched, "single/test_run.py"]
    assert commands[2][:3] == ["/bin/mpirun", "-np", "2"]
    assert commands[4][:2] == ["/python", str(ranks.PROGRAM)]
    finished = 1
    with pytest.raises(HvdError, match="1 of 2 ranks"):
        names("~mpi+gloo")


@pytest.mark.parametrize(
    ("frameworks", "distributions", "names"),
    [
        (["pytorch"], {"torch": "2.13.0+cpu"}, ["pytorch"]),
        (
            ["tensorflow", "keras"],
            {"tensorflow-cpu": "2.15.1", "keras": "2.15.0"},
            ["tensorflow2", "keras"],
        ),
        (["tensorflow"], {"tensorflow-cpu": "2.15.1", "keras": "2.15.0"}, ["tensorflow2"]),
        (["tensorflow"], {"tensorflow": "2.12.1"}, ["tensorflow2"]),
        # its optimizers do not list their variables
        (["tensorflow"], {"tensorflow": "2.11.1"}, []),
    ],
)
def test_the_examples_are_those_for_what_the_cell_has(frameworks, distributions, names):
    assert list(ranks.examples(frameworks, distributions)) == names


def test_what_was_built_is_found_beside_its_bill_of_materials(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    (tmp_path / "built").mkdir()
    content = {"variables": {"PATH": str(python.parent), "VIRTUAL_ENV": "x"}}
    (tmp_path / "built" / "local-hvd-63193a2-pip.json").write_text(json.dumps(content))
    (tmp_path / "built" / "local-hvd-63193a2-pip.cdx.json").write_text("{}")
    target = ranks.built(tmp_path, "pip")
    assert target.python == python
    assert target.environment["VIRTUAL_ENV"] == "x"


MPIRUN = """\
#!/bin/sh
cores=$(env -u OMP_NUM_THREADS nproc)
for epoch in 1 2 3 4 5 6 7 8 9; do echo "epoch $epoch: loss 0.5, $cores$epoch samples/s"; done
echo "epoch 10: loss 0.5, $cores samples/s"
"""


def test_the_rate_is_that_of_the_fastest_epoch_with_a_core_for_each_rank(tmp_path):
    (tmp_path / "mpirun").write_text(MPIRUN)
    (tmp_path / "mpirun").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    target = ranks.Target(tmp_path / "python", variables)
    on_ranks = Ranks(target, "+mpi~gloo", tmp_path, tmp_path / "log")
    before = os.sched_getaffinity(0)
    found = ranks.rates("pytorch", on_ranks)
    assert found == {"1": 19.0, "2": 29.0 if len(before) > 1 else 19.0}
    assert os.sched_getaffinity(0) == before

    (tmp_path / "mpirun").write_text(MPIRUN.replace("epoch 10", "end"))
    with pytest.raises(HvdError, match="examples/pytorch: 9 epochs"):
        ranks.rates("pytorch", on_ranks)
