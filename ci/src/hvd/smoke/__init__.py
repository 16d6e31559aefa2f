"""Smoke tests: prove that a built Horovod computes correctly on several ranks.

The modules whose names begin with ``program`` run on every rank, under the framework's
Python, and import nothing of this package; the others run in the tool.
"""
