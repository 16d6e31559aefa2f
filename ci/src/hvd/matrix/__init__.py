"""The support matrix: which combinations are tried, how, what came of them, and the page.

`definition` reads ``ci/matrix.yaml``; `cover` chooses combinations such that every pair of values
that can exist is in one; `runner` builds and tests one of them by the pip engine; `result` keeps
what came of it in ``docs/matrix``; `bounds` compares that with the recipe, and `page` shows it.
"""
