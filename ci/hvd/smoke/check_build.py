"""What ``horovodrun --check-build`` says, compared as the recipe itself compares it."""

from hvd import paths, recipe

_DIRECTORY = paths.PACKAGES / "py_horovod"
_MODULE = recipe.module("check_build", _DIRECTORY / "check_build.py")

#: Frameworks that Horovod has a compiled plugin for, and lists.
PLUGINS = tuple(recipe.module("build_flags", _DIRECTORY / "build_flags.py").PLUGINS)

CheckBuildError = _MODULE.CheckBuildError
Expectation = _MODULE.Expectation
BuildReport = _MODULE.BuildReport
parse = _MODULE.parse
table = _MODULE.table
differences = _MODULE.differences
