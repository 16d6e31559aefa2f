"""CVE-2024-10190: the rendezvous of elastic jobs unpickled what anyone put into it.

The real rendezvous, driver and worker classes of a source tree, attacked over loopback.
"""

import pytest

from tests.build.security import sources

# the first version and the last, and those where the files that the patch changes differ
pytestmark = pytest.mark.parametrize("version", ["0.20.0", "0.21.1", "0.24.3", "0.28.1"])


def attack(tree, kind, directory):
    """Answers of the attacked servers, and the names of what was unpickled."""
    output = sources.run(tree, "elastic.py", kind, directory / "marker")
    return sources.outcome(output), {path.name for path in directory.glob("marker*")}


def test_the_holes_are_in_the_release(shared_tree, version, tmp_path):
    """So that the next test means something."""
    answers, unpickled = attack(shared_tree(version), "released", tmp_path)
    # the pickle of the CVE, the answer of a false worker, a request to a worker
    assert unpickled == {"marker-rendezvous", "marker-answer", "marker-request"}
    assert answers["worker's key"] == 200


def test_nothing_is_unpickled_and_workers_are_told_of_hosts(secured, version, tmp_path):
    answers, unpickled = attack(secured(version), "patched", tmp_path)
    assert not unpickled
    assert answers["pickle"] == 400
    assert set(answers["malformed"].values()) == {400}, answers["malformed"]
    assert set(answers["slots"]) == {400}
    assert answers["rank of no slot"] == 404
    assert answers["false worker"] == 400
    assert answers["worker's key"] == 404
    heard = [1234567890] if version == "0.20.0" else [1234567890, 3]
    assert answers["worker heard"] == [heard]
