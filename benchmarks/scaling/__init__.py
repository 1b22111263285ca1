"""A simulated cluster of a thousand workers: how its costs grow, and its first bottlenecks. Results: docs/scaling.md.

python -m benchmarks.scaling.costs        # measures the cost of single steps here, with a PostgreSQL of its own
python -m benchmarks.scaling              # the scenarios, as a table (a few minutes)
"""
