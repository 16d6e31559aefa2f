"""CVE-2026-31234: horovod.run() unpickled what anyone put into its KV store.

The real launchers, servers and workers of a source tree run functions on ranks on this machine;
mpirun and ssh are stand-ins, where an attacker would see command lines.
"""

import json
import os
import re

import pytest

from tests.build.security import sources
from tests.checkout import script

#: Version: its launcher.  The first and the last, and one for each patch file.
LAUNCHERS = {
    "0.19.0": "horovod.run.run",
    "0.19.5": "horovod.run.runner",
    "0.20.0": "horovod.runner.launch",
    "0.24.3": "horovod.runner.launch",
    "0.28.1": "horovod.runner.launch",
}
EXPECTED = [[0, 42, False], [1, 42, False]]


@pytest.fixture(params=LAUNCHERS)
def version(request):
    return request.param


@pytest.fixture
def launch(tmp_path, version):
    """A function that runs a function on two ranks: the output, and what launchers saw."""

    def launched(tree, attack=False, **options):
        for name in ("mpirun", "ssh"):
            sources.command(tmp_path / "bin", name)
        environment = {"SECURITY_TEST_MARKER": tmp_path / "marker"} if attack else {}
        log = tmp_path / "log"
        log.write_text("")
        output = sources.run(
            *(tree, "run_function.py", LAUNCHERS[version], json.dumps({"np": 2, **options})),
            PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            SECURITY_TEST_LOG=log,
            **environment,
        )
        return output, [json.loads(line) for line in log.read_text().splitlines()]

    return launched


def markers(directory):
    return sorted(path.name for path in directory.glob("marker*"))


def test_the_hole_is_in_the_release(shared_tree, version, launch, tmp_path):
    """So that the next test means something."""
    output, _ = launch(shared_tree(version), attack=True, use_mpi=True)
    assert markers(tmp_path) == ["marker-func", "marker-result"], output


def test_what_an_attacker_puts_is_refused_and_never_unpickled(secured, version, launch, tmp_path):
    output, _ = launch(secured(version), attack=True, use_mpi=True)
    assert re.findall(r"ATTACK (\S+) (\d+)", output) == [
        ("/runfunc/func", "403"),
        ("/runfunc_result/0", "403"),
    ]
    assert sources.outcome(output).get("results") == EXPECTED, output
    assert not markers(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"use_gloo": True},
        {"use_mpi": True},
        {"use_gloo": True, "hosts": "elsewhere.invalid:2"},
    ],
    ids=["gloo", "mpi", "ssh"],
)
def test_functions_run_and_nobody_else_sees_the_keys(secured, version, launch, options):
    output, seen = launch(secured(version), **options)
    outcome = sources.outcome(output)
    assert outcome.get("results") == EXPECTED, output
    # the keys came to mpirun and ssh, and are on no command line and in no output
    keys = {key for entry in seen for key in entry["keys"]}
    # rendezvous-key.patch: that of the rendezvous comes through ssh as well
    of_ssh = 1 if version.startswith("0.19.") else 2
    assert len(keys) == (of_ssh if "hosts" in options else 1 if "use_mpi" in options else 0)
    assert outcome["keyed"] == ([] if "use_mpi" in options or of_ssh == 1 else [True])
    for key in keys:
        assert len(key) == 64
        assert key not in output
        assert not [entry for entry in seen if key in json.dumps(entry["arguments"])]
    assert not re.search(r"\b[0-9a-f]{64}\b", output)
    assert set(outcome["listening"]) == {"127.0.0.1"}


@pytest.mark.parametrize("version", ["0.28.1"], indirect=True)
def test_functions_run_in_elastic_jobs(secured, version, launch, tmp_path):
    hosts = script(tmp_path / "hosts", "echo localhost:2")
    options = {"min_np": 2, "max_np": 2, "host_discovery_script": str(hosts)}
    output, _ = launch(secured(version), use_gloo=True, **options)
    assert sources.outcome(output).get("results") == EXPECTED, output


def test_the_store_serves_those_who_have_the_key(secured, version):
    package = LAUNCHERS[version].rpartition(".")[0]
    assert sources.outcome(sources.run(secured(version), "kvstore.py", package)) == {
        "signed PUT, GET": "value",
        "second function": "HTTPError",
        "GET without key": 404,
        "GET with another key": "HTTPError",
        "PUT with another key": "HTTPError",
        "signature of another place": "RuntimeError",
        "HEAD": 405,
        "PUT without length": 400,
        "PUT with a negative length": 400,
        "PUT with four parts": 400,
        "rendezvous HEAD": 405,
        "rendezvous PUT of 1 TB": 413,
        "rendezvous PUT, GET": [200, 200],
        "worker without key": "RuntimeError",
        "still there": "value",
    }
