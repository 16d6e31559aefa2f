"""A binary cache of Spack's: what is pushed to it, what is taken from it, and whose keys count.

`cache` knows one and what is in it, `transfer` pushes to it and installs from it, `keyring` has
the keys.  ``solve/queries/cache.py`` is run by ``spack python``.
"""
