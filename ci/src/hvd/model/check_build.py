"""The output of ``horovodrun --check-build``, compared by the recipe with what was asked for.

``horovodrun --check-build`` exits with 0 whatever is missing (horovod/runner/launch.py,
``check_build``), so its text has to be compared.
"""

from __future__ import annotations

import dataclasses
import types
from typing import FrozenSet, Iterable, List

from hvd.model import recipe

_RECIPE = recipe.load("py-horovod").module
#: Frameworks that Horovod has a compiled plugin for and lists, to their modules in ``horovod``.
PLUGINS = {name: module for name, (_, _, module) in _RECIPE.PLUGINS.items()}


@dataclasses.dataclass(frozen=True)
class Expectation:
    """The frameworks, controllers and operations to expect, in the words of the Spack variants.

    Args:
        version: such as ``0.28.1``.
        frameworks: those with a plugin of their own, of ``pytorch``, ``tensorflow``, ``mxnet``.
        controllers: of ``mpi``, ``gloo``.
        operations: of ``nccl``, ``ddl``, ``ccl``, ``mpi``, ``gloo``.  Horovod lists ``mpi``
            and ``gloo`` whenever it is built with them, also where NCCL does the work.
        extras: frameworks without a plugin of their own, which Horovod does not list: of
            ``keras``, ``spark``, ``ray``.
    """

    version: str
    frameworks: FrozenSet[str]
    controllers: FrozenSet[str]
    operations: FrozenSet[str]
    extras: FrozenSet[str] = frozenset()

    @classmethod
    def of(
        cls,
        version: str,
        frameworks: Iterable[str],
        controllers: Iterable[str],
        operations: Iterable[str],
    ) -> Expectation:
        """Return what the variants of a spec ask for; Keras uses the plugin of TensorFlow."""
        names = set(frameworks)
        plugins = names | ({"tensorflow"} if "keras" in names else set())
        return cls(
            version=version,
            frameworks=frozenset(plugins & set(PLUGINS)),
            controllers=frozenset(controllers),
            operations=frozenset({*operations, *controllers}),
            extras=frozenset(names - set(PLUGINS)),
        )


class _Spec(FrozenSet[str]):
    """Stands in for the spec that the recipe asks for its variants and version."""

    version = ""


def differences(text: str, expectation: Expectation) -> List[str]:
    """Say how the output of ``horovodrun --check-build --verbose`` is not as expected."""
    spec = _Spec(f"+{name}" for name in expectation.operations)
    spec.version = expectation.version
    package = types.SimpleNamespace(spec=spec, plugins=sorted(expectation.frameworks))
    return [f"built {each}" for each in _RECIPE.PyHorovod._differences(package, text)]
