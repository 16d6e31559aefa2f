"""Spack binary caches: pushing packages, installing them, and the keys that count.

:mod:`cache` pushes and installs with ``spack buildcache`` and ``spack install``, :mod:`keyring`
has the keys.  ``solve/queries/cache.py`` runs in Spack's interpreter.

Keys are managed by gpg and not by ``spack gpg``, which is the same gpg behind Spack's start-up:
keys are needed before there is a Spack (``./hvd cache key`` on a machine that signs), and
``spack gpg`` neither says which key it has made, nor looks into a file before it trusts what is
in it.
"""
