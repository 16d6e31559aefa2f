"""Where a build comes from: its solution, what changed since another one, and its parts.

`solution` reads what Spack solved, `sides` finds two solutions to compare, `difference` compares
them, and `bom` writes the bill of materials of a build.
"""
