"""The pipeline behind ``./hvd``: setup, concretize, build, smoke, report."""
