"""What activates a built environment in a shell that has no Spack: ``./hvd activate``."""
