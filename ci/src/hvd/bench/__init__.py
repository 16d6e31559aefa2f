"""``./hvd bench``: wall times, and their ratios to those of a reference.

Each part measures everything that it compares in one run and keeps the results in
``docs/performance``, from which ``docs/performance.md`` is made.
"""
