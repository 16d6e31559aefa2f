"""``./hvd bench``: how long things take, as ratios to what they are compared with.

Each part measures everything it compares in one run, and keeps it in ``docs/performance``;
``docs/performance.md`` is made of that.
"""
