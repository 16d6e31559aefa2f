"""Print as JSON what the active environment can never need, and whether its compilers are here.

Run by ``spack python``.

Spack considers every package that any recipe on the way might ask for: also what only an
external would need if it were built, and what only other variants than the root specs' would
need, such as one that exists with ``+cuda`` alone.  Told with ``buildable: false`` that these are
ruled out (and with ``concretizer:static_analysis``), it finds the same solution several times
faster.
"""

import json
import os

import spack.config
import spack.environment
import spack.platforms
import spack.repo
import spack.spec
from spack.deptypes import TEST


def external_only(name):
    """Return whether ``name`` is never built: its recipe's dependencies do not matter then."""
    return not spack.config.get(f"packages:{name}:buildable", True)


def impossible(name, virtual=None):
    """Return whether ``name`` is ruled out: neither to be built (as ``virtual``) nor external."""
    ruled_out = external_only(name) or (virtual is not None and external_only(virtual))
    return ruled_out and not spack.config.get(f"packages:{name}:externals", [])


def dependencies(name):
    """Return what the recipe ``name`` may ask for, virtuals replaced by their providers.

    Yields name, conditions, and whether it is ruled out.
    """
    recipe = spack.repo.PATH.get_pkg_class(name)
    for dependency, declared in recipe.dependencies_by_name(when=True).items():
        # what only a package's own tests want, which a solve does without
        conditions = [
            when
            for when, each in declared.items()
            if on_this_platform(when) and any(one.depflag & ~TEST for one in each)
        ]
        if not conditions:
            continue
        if spack.repo.PATH.is_virtual(dependency):
            for provider in spack.repo.PATH.providers_for(dependency):
                yield provider.name, conditions, impossible(provider.name, dependency)
        else:
            yield dependency, conditions, impossible(dependency)


def on_this_platform(when):
    return when.architecture is None or when.architecture.platform in (None, PLATFORM)


def meets(root, when):
    """Return whether ``root`` can meet the condition ``when`` of its own recipe.

    A variant that exists only under a condition of its own, as ``cuda_arch`` does with ``+cuda``,
    has no value where that is not met.
    """
    recipe = spack.repo.PATH.get_pkg_class(root.name)
    definitions = [recipe.variant_definitions(name) for name in when.variants]
    return root.intersects(when) and all(
        any(root.intersects(condition) for condition, _ in each) for each in definitions if each
    )


def beyond(roots):
    """Return what lies one step beyond all that ``roots`` can reach, which cuts off the rest."""
    needed = set(RUNTIMES)
    edge = set()
    stack = [(spec.name, spec) for spec in roots]
    while stack:
        name, root = stack.pop()
        needed.add(name)
        for dependency, conditions, ruled_out in dependencies(name):
            possible = root is None or any(meets(root, when) for when in conditions)
            beyond_this = external_only(name) or not possible or ruled_out
            if beyond_this:
                edge.add(dependency)
            # an external can always be had, so that Spack looks at what its recipe asks for
            if dependency not in needed and (not beyond_this or external_only(dependency)):
                stack.append((dependency, None))
    return edge - needed


def compilers_here():
    """Return whether this machine has any compiler of the active environment."""
    packages = spack.config.get("packages").values()
    externals = [each for package in packages for each in package.get("externals", [])]
    compilers = [e.get("extra_attributes", {}).get("compilers", {}) for e in externals]
    return any(os.path.exists(path) for each in compilers for path in each.values())


#: Compilers bring these along whether or not a recipe names them.
RUNTIMES = ("gcc-runtime", "compiler-wrapper", "glibc", "musl", "intel-oneapi-runtime")

PLATFORM = str(spack.platforms.host())

roots = [spack.spec.Spec(str(spec)) for spec in spack.environment.active_environment().user_specs]
print(json.dumps({"unneeded": sorted(beyond(roots)), "compilers_here": compilers_here()}))
