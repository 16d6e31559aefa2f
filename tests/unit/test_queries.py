"""The list of Spack's private interfaces; ``tests/spack`` asks Spack for each of them."""

import ast
import pathlib

from hvd.solve import queries

PROGRAMS = sorted(path.stem for path in pathlib.Path(queries.__file__).parent.glob("[a-z]*.py"))


def used(program):
    """The dotted names below the modules of Spack that a program reads."""
    tree = ast.parse(pathlib.Path(queries.__file__).with_name(f"{program}.py").read_text())
    aliases = {"spack": "spack"}
    inner = set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("spack"):
            aliases.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
        elif isinstance(node, ast.Import):
            aliases.update({a.asname: a.name for a in node.names if a.asname})
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and node not in inner:
            names = []
            while isinstance(node, ast.Attribute):
                names.insert(0, node.attr)
                node = node.value
                inner.add(node)
            if isinstance(node, ast.Name) and aliases.get(node.id, "").startswith("spack"):
                found.add(".".join([aliases[node.id], *names]))
    return found


def test_the_list_is_what_they_use():
    assert set().union(*map(used, PROGRAMS)) == set(queries.INTERFACES)
