"""A new site's files from the answers of a login node, and their check against the machine."""
