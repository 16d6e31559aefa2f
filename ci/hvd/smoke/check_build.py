"""What ``horovodrun --check-build`` says, compared as the recipe itself compares it."""

from hvd import paths, recipe

_MODULE = recipe.module("check_build", paths.PACKAGES / "py_horovod" / "check_build.py")

CheckBuildError = _MODULE.CheckBuildError
Expectation = _MODULE.Expectation
BuildReport = _MODULE.BuildReport
parse = _MODULE.parse
table = _MODULE.table
differences = _MODULE.differences
