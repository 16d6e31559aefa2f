"""A site that ./hvd site new wrote is rehearsed, with nothing edited."""

from __future__ import annotations

from hvd.model.versions import pinned
from hvd.rehearse import result
from tests.conftest import locate_spack
from tests.services.moon import made


def test_it_passes(tmp_path):
    locate_spack(pinned().pairs[0].name, tmp_path / "log")
    with made(tmp_path) as moon:
        moon.hvd("rehearse", "moon-hvd")
    done = result.load(moon.checkout.state / "rehearsals" / "moon-hvd" / "result.json")
    assert done.passed and {step.result for step in done.steps} == {result.PASSED}
