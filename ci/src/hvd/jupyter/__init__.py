"""Horovod in notebooks: ``./hvd kernel``."""
