"""ReFrame: its settings, made of the sites' files, and the checks that ``./hvd check`` runs.

`settings` and `checks` are read by ReFrame, which may be any that the machine has; the rest is
ours.
"""
