"""The first error of a log, and its known cause."""

from __future__ import annotations

import pytest

from hvd.matrix import cause, definition

CAUSES = definition.load().causes


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (
            "/b/a.cc:3:5: warning: unused variable 'error'\n"
            "/b/a.cc:12:1: error: 'x' was not declared in this scope\n"
            "/b/a.cc:13:1: error: 'y' was not declared\n"
            "make: *** [all] Error 2\n",
            "/b/a.cc:12:1: error: 'x' was not declared in this scope",
        ),
        (
            "-- Configuring incomplete, errors occurred!\n\x1b[31mCMake Error at a:5:\x1b[0m\n",
            "CMake Error at a:5:",
        ),
        (
            "Traceback (most recent call):\nModuleNotFoundError: No module named 'packaging'\n",
            "ModuleNotFoundError: No module named 'packaging'",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement a==1\n"
            "ERROR: No matching distribution found for a==1\n",
            "ERROR: Could not find a version that satisfies the requirement a==1",
        ),
        ("/usr/bin/ld: a.o: undefined reference to `b'\n", "/usr/bin/ld: a.o: undefined"),
        ("==> Error: 1 test failed.\n\n\nCommand exited\n", "==> Error: 1 test failed."),
        (
            "==> Error: failed to concretize `py-horovod@0.28.1` for the following reasons:\n"
            "     1. Cannot satisfy 'cmake@3.31.10'\n     2. Cannot build cmake\n",
            "Cannot satisfy 'cmake@3.31.10'",
        ),
        (
            "==> Error: The following packages failed to install:\n"
            "pip._internal.exceptions.InstallationError: Failed to build\n",
            "pip._internal.exceptions.InstallationError: Failed to build",
        ),
        (
            "subprocess.CalledProcessError: 'x' failed\n",
            "subprocess.CalledProcessError: 'x' failed",
        ),
        ("error: subprocess-exited-with-error\n", "the command failed"),
        ("all is well\n0 errors\n", "the command failed"),
    ],
)
def test_the_first_error_is_found(log, first):
    found, _ = cause.find(CAUSES, log, "the command failed")
    assert found.startswith(first)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("AttributeError: module 'numpy' has no attribute 'bool'.", "mxnet-numpy"),
        ("third_party/gloo/gloo/types.h:40:3: error: 'uint8_t' does not name a type", "gcc-gloo"),
        ("  Compatibility with CMake < 3.5 has been removed from CMake.", "cmake-4"),
        ("ModuleNotFoundError: No module named 'packaging'", "no-packaging"),
        ("ModuleNotFoundError: No module named 'distutils'", "distutils"),
        ("#error C++17 or later compatible compiler is required to use PyTorch.", "cxx-standard"),
        ("#error C++20 or later compatible compiler is required to use ATen.", "cxx-standard"),
        ("TypeError: Descriptors cannot be created directly.", "protobuf"),
        ("TypeError: Descriptors cannot not be created directly.", "protobuf"),
    ],
)
def test_every_known_cause_is_found_by_what_a_log_says(line, name):
    assert cause.known(CAUSES, f"before\n{line}\nafter\n") == name


def test_every_known_cause_is_tried_above():
    (mark,) = test_every_known_cause_is_found_by_what_a_log_says.pytestmark
    assert {name for _, name in mark.args[1]} == {each.name for each in CAUSES}
    assert cause.known(CAUSES, "nothing of the kind") == ""
