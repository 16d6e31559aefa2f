"""Publish built environments as modules for Lmod and Environment Modules.

What of Spack's own generator is used, and why not all of it.  ``spack module lmod|tcl refresh``
writes a module for each package.  Horovod's then needs those of all its dependencies, and an
external Python (conda's, a virtual environment's) gets none that brings its packages: the load
succeeds and the import fails.  So one module is published for the whole environment, with what
``spack load`` would set (``spack.user_environment``, which reads ``modules.yaml`` for the
prefixes' directories, as Spack's modules do).  Spack puts the date into each file and writes in
place; here the same input gives the same bytes, and a tree is there whole or not at all.  The
pip engine has no Spack at all, and must give the same module.

The way of an environment: :mod:`hvd.model.built` (what was built) -> :mod:`describe` (a
:class:`module.Module`, the same for every tool and engine) -> :mod:`render` (Lua, Tcl) ->
:mod:`plan` (what is new, what clashes) -> :mod:`store` (the tree on disk).
"""
