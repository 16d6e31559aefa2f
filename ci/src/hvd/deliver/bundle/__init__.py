"""Everything that an environment needs, in one directory or archive, for machines without network.

`content` gathers it, `pack` checks and packs it, and ``install.sh`` in it sets it up.
"""
