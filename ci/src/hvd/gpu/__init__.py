"""The check of a machine's GPUs, for machines that are there for a while and have no network.

`check` builds Horovod and runs it; `report` writes the one file to bring back.
"""
