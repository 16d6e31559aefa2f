"""rendezvous-key.patch: Gloo's rendezvous serves those who have the key of the job.

The server and the clients of a source tree, the one in C++ compiled.  That jobs have a key, and
that nobody else sees it, test_cve_2026_31234.py and test_elastic.py say.
"""

import hashlib
import hmac
import os
import subprocess

import pytest

from tests import compiling, needs
from tests.build.security import sources

pytestmark = needs.programs("c++")

DIGEST = """
#include "horovod/common/gloo/hmac_sha256.h"
#include <iostream>
#include <iterator>
using namespace horovod::common;
int main(int, char** argv) {
  std::string message((std::istreambuf_iterator<char>(std::cin)), {});
  std::cout << ToHex(HmacSha256(FromHex(argv[1]), message));
}
"""


# the first version, the last, and one of each http_store.cc
@pytest.mark.parametrize("version", ["0.20.0", "0.22.1", "0.28.1"])
def test_who_has_no_key_is_refused(secured, version, tmp_path):
    tree = secured(version)
    program = compiling.program(
        tree, tmp_path, (sources.HERE / "store.cc").read_text(), *compiling.STORE
    )
    refused = [403, 403, 403]
    assert sources.outcome(sources.run(tree, "rendezvous.py", program)) == {
        "signed": [200, 200],
        "unsigned": refused,
        "another key": refused,
        "signature of another request": refused,
        "kept": "address",
        "worker's": "worker",
        "C++": "same",
        "C++ has deleted": True,
        "C++ without key": "HTTP request failed.",
        "C++ with another key": "HTTP request failed.",
        "C++ left": ["global", "hosts"],
        "signed DELETE": 200,
        "server without key": [200, "same", "same"],
    }


def test_the_digest_is_hmac_sha256(secured, tmp_path):
    program = compiling.program(secured("0.28.1"), tmp_path, DIGEST)
    # where its padding takes another block, and keys of more than a block
    for length in (0, 1, 55, 56, 63, 64, 65, 119, 120, 100_000):
        for key in (b"", os.urandom(32), os.urandom(64), os.urandom(65)):
            message = os.urandom(length)
            done = subprocess.run([program, key.hex()], input=message, stdout=subprocess.PIPE)
            wanted = hmac.new(key, message, hashlib.sha256).hexdigest()
            assert done.stdout.decode() == wanted, (length, len(key))
