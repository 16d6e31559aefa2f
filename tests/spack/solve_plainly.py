"""Run by ``spack python``: what Spack makes of specs, as JSON, one object for each.

Of a solution ``nodes``: package to version and variants.  Of a refusal ``errors``: the messages
that the solver itself gives.  Spack then looks for the causes of each, which is left out here.
"""

import json
import sys

import spack.error
import spack.solver.asp as asp
from spack.spec import Spec


class Refused(Exception):
    """The solver's own messages."""


def raise_if_errors(self):
    errors = sorted(asp.extract_args(self.model, "error"), key=lambda each: -int(each[0]))
    if errors:
        raise Refused([message.format(*arguments) for _, message, *arguments in errors])


asp.ErrorHandler.raise_if_errors = raise_if_errors


def solve(text):
    try:
        result = asp.Solver().solve([Spec(text)], allow_deprecated=True)
    except Refused as refused:
        return {"errors": refused.args[0]}
    except spack.error.SpackError as error:
        return {"errors": [str(error)]}
    (root,) = result.specs
    return {"nodes": {node.name: node.format("{@version}{variants}") for node in root.traverse()}}


print(json.dumps([solve(text) for text in sys.argv[1:]]))
