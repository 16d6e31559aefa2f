"""ReFrame: its settings, made of the sites' files, and the checks of ``./hvd check``.

`settings` and `checks` are read by ReFrame, which may be any that the machine has.
"""
