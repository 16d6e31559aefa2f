"""Where a build comes from: its solution, what changed since another one, and its parts.

`solution` reads what Spack solved, `sides` finds two solutions to compare, `difference` compares
them; `parts` knows what a build consists of, and `bom` writes that down as a bill of materials.
"""
