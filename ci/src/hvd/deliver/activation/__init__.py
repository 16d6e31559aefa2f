"""Activation of a built environment in a shell without Spack, for ``./hvd activate``.

``spack env activate --sh`` is not used: what it prints cannot be undone without Spack, knows no
site's modules and network, and does not exist for the pip engine.
"""
