"""Everything that an environment needs in one directory or archive, for machines without network.

:mod:`content` gathers it, :mod:`pack` adds checksums and packs it, and its ``install.sh`` sets it
up.
"""
