"""Publication of built environments as modules for Lmod and Environment Modules.

``spack module lmod|tcl refresh`` is not used: it writes one module for each package, so that
Horovod's needs those of all its dependencies, and an external Python (conda's, a virtual
environment's) has none that brings its packages.  It also writes the date into each file, and
writes in place.  Here one module does what ``spack load`` does for the whole environment
(``spack.user_environment``, which reads ``modules.yaml`` as well), the same input gives the same
bytes, and a tree is replaced as a whole.  Lmod's ``sh_to_modulefile`` is not used either: it runs
on a machine with Lmod, records absolute values, and writes neither help nor conflicts.  The pip
engine has neither Spack nor Lmod, and must give the same module.

:mod:`module` makes the module, :mod:`plan` the new tree of files, and :mod:`store` puts that on
the disk.
"""
