"""The cost of serving, and the behaviour under load: Octet and its peers under the same load, on the same core.

A server is pinned to one core before it loads anything, its load generator to another; `peers` has the other servers,
each in its own environment. `python -m benchmarks.serving` makes one run, `benchmarks.serving.report` its tables.
"""
