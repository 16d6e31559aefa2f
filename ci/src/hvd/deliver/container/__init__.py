"""Definitions of container images, for Apptainer and as Containerfiles for Podman and Docker.

HPCCM writes both from one recipe.  ``spack containerize`` was tried and does not serve: it
copies ``spack.yaml`` alone into the image, without the files that it includes and without this
package repository, and so builds Spack's own py-horovod, and PyTorch from source; its
Containerfile has neither a test nor a user.  In the image, ``./hvd`` builds with the pip engine:
the same recipe, flags, patches and pinned frameworks as elsewhere.  If the smoke test fails there
is no image.

:mod:`plan` decides what goes into an image, :mod:`recipe` writes it down.
"""
