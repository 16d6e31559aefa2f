"""The answers of a login node: the files of a new site, and their check against the machine."""
