"""The form "Which spec do I install?" of the documentation site.

The page's scripts (``docs/_static/spec.js``, ``which-spec.js``) evaluate the directives that
`recipe_data` exports.  No rule of the recipe is repeated here or there.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List

import archspec.cpu
import yaml

from hvd.core import paths, templates
from hvd.model import recipe
from hvd.model.environment import HOROVOD

#: The directives that decide whether a spec is refused, and the keywords that matter for that.
_DIRECTIVES = ("variant", "depends_on", "conflicts", "requires")
_KEYWORDS = ("default", "msg", "policy")
#: The packages whose version a user may choose, for frameworks without a compiled plugin.
_PACKAGES = {"keras": "py-keras", "spark": "py-pyspark", "ray": "py-ray"}
_LABELS = {"pytorch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet"}
_COMPILERS = {"gcc": "gcc", "clang": "llvm"}


def recipe_data() -> Dict[str, Any]:
    """The recipe's versions and directives, and the processors' ancestors, for JSON."""
    horovod = recipe.load(HOROVOD)
    directives = [
        {
            "name": each.name,
            "arguments": each.arguments,
            "when": each.when,
            **{name: each.keywords[name] for name in _KEYWORDS if name in each.keywords},
        }
        for each in horovod.directives
        if each.name in _DIRECTIVES
    ]
    targets = archspec.cpu.TARGETS.items()
    return {
        "name": HOROVOD,
        "versions": list(horovod.versions()),
        "directives": directives,
        "targets": {name: [each.name for each in target.ancestors] for name, target in targets},
    }


def form() -> str:
    """Return the form as HTML, with the recipe's data in it."""
    horovod = recipe.load(HOROVOD)
    template = templates.environment(autoescape=True).get_template("docs/which_spec.html.j2")
    return template.render(
        versions=list(horovod.versions()),
        frameworks=_frameworks(horovod),
        suggestions=_suggestions(),
        # "</script>" in a string would end the element
        data=json.dumps(recipe_data(), separators=(",", ":")).replace("</", "<\\/"),
    )


def _frameworks(horovod: recipe.Recipe) -> List[Dict[str, Any]]:
    (variant,) = (each for each in horovod.named("variant") if each.arguments == ("frameworks",))
    packages = {name: package for name, (_, package, _) in horovod.module.PLUGINS.items()}
    return [
        {
            "name": name,
            "label": _LABELS.get(name, name.capitalize()),
            "package": {**packages, **_PACKAGES}[name],
            "default": name == variant.keywords["default"],
        }
        for name in variant.keywords["values"]
    ]


def _suggestions() -> Dict[str, List[str]]:
    """Values for the text boxes: what the support matrix builds, and what the sites have."""
    axes = yaml.safe_load((paths.ROOT / "ci" / "matrix.yaml").read_text())["axes"]
    found: Dict[str, List[str]] = {"python": axes["python"]}
    for value in axes["framework"]:
        name, _, version = value.rpartition("-")
        if version[:1].isdigit():
            found.setdefault(name, []).append(version)
    found["mpi"] = [name.rpartition("-")[2] for name in axes["mpi"] if "-" in name]
    compilers = [name.split("-") for name in axes["compiler"] if "-" in name]
    found["compiler"] = [f"{_COMPILERS[name]}@{version}" for name, version in compilers]
    hardware = "".join(file.read_text() for file in paths.ENVIRONMENTS.glob("hardware/*/*.yaml"))
    for name in ("cuda_arch", "amdgpu_target", "target"):
        found[name] = sorted(set(re.findall(rf"\b{name}=(\w+)", hardware)))
    return found
