"""What a login node answers: the files of a new site, and their check against the machine."""
