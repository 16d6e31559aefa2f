"""Run by `spack python`: what the directives of recipes say of specs, without a solve.

Reads a JSON list of specs from the file named first, and prints as JSON one list of messages
for each.  As many solves would take hours.
"""

import json
import sys

import spack.repo
from spack.spec import Spec


def messages(spec):
    """What the recipe's conflicts, requirements and dependencies say against ``spec``."""
    recipe = spack.repo.PATH.get_pkg_class(spec.name)
    for when, conflicts in recipe.conflicts.items():
        for conflict, message in conflicts:
            if spec.satisfies(when) and spec.satisfies(conflict):
                yield message or f"{conflict} when {when}"
    for when, requirements in recipe.requirements.items():
        for wanted, policy, message in requirements:
            met = sum(spec.satisfies(one) for one in wanted)
            if spec.satisfies(when) and not (met if policy == "any_of" else met == 1):
                yield message
    for when, dependencies in recipe.dependencies.items():
        if spec.satisfies(when):
            for dependency in dependencies.values():
                if not met_by(spec, dependency.spec):
                    yield str(dependency.spec)


def met_by(spec, wanted):
    """Whether what ``spec`` has of ``wanted`` is right; what it does not name is."""
    if spack.repo.PATH.is_virtual(wanted.name):
        edges = [e for e in spec.edges_to_dependencies() if wanted.name in e.virtuals]
        return all(provides(edge.spec, wanted) for edge in edges)
    return all(agrees(edge.spec, wanted) for edge in spec.edges_to_dependencies(name=wanted.name))


def agrees(have, wanted):
    """Whether ``have`` is what is wanted, as far as it is said."""
    named = [name for name in wanted.variants if name in have.variants]
    return have.versions.intersects(wanted.versions) and all(
        have.variants[name].satisfies(wanted.variants[name]) for name in named
    )


def provides(provider, wanted):
    provided = spack.repo.PATH.get_pkg_class(provider.name).provided
    return any(
        virtual.name == wanted.name and virtual.intersects(wanted)
        for when, virtuals in provided.items()
        if provider.satisfies(when)
        for virtual in virtuals
    )


with open(sys.argv[1]) as stream:
    texts = json.load(stream)
print(json.dumps([sorted(set(messages(Spec(text)))) for text in texts]))
