"""The cost of serving, and its behaviour under load: Octet and its peers behind the same load, on the same core.

A server is pinned to one core before it loads anything, the generator of its load to another; `peers` are the others'
servers, each in an environment of its own. `python -m benchmarks.serving` is one run, `benchmarks.serving.report` the
tables made of it.
"""
