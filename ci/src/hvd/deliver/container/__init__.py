"""Definitions of container images: for Apptainer, and a Containerfile for Podman and Docker.

Made with HPCCM, which writes both from one recipe.  `spack containerize` was tried and does
not serve: it copies ``spack.yaml`` alone into the image, without what that includes and without
our package repository, so that it would build Spack's own py-horovod, and PyTorch from source;
a Containerfile of it has neither a test nor a user.  What builds in the image is `./hvd` itself,
with its pip engine: the same recipe, flags, patches and pinned frameworks as anywhere, and its
smoke test on two ranks, without which there is no image.

`plan` says what goes into an image, and refuses what cannot; `recipe` writes it down.
"""
