"""The support matrix: choose combinations, build and test them, keep and show the results.

`definition` reads ``ci/matrix.yaml``; `needs` and `here` say what a cell needs and this machine
has; `plan` and `cover` choose the cells; `runner` tries them, each by an `attempt`; `result` keeps
the results in ``docs/matrix``, and `page` shows them.
"""
