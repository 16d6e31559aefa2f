"""Show with a failure what the command behind it printed last."""

import pytest

from hvd.core.errors import CommandFailed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, CommandFailed):
        failed = call.excinfo.value
        report.sections.append((f"The end of {failed.log}", failed.tail))
    return report
