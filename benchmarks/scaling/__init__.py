"""A simulated cluster of a thousand workers: how its costs grow, and its first bottlenecks. Results: docs/scaling.md.

python -m benchmarks.scaling.costs        # measures what one step of it costs here, on a PostgreSQL of its own
python -m benchmarks.scaling              # the scenarios, as a table (a few minutes)
"""
