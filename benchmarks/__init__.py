"""Measurements; README.md says which there are, and how each is made.

Each says of every figure what was measured: model, threads, cores, numerics mode. Each contestant runs in a
process of its own, pinned to the same cores, and they take turns: A B C, C B A, and so on, so that a machine that gets
slower or busier does so for all of them. What other programs kept busy meanwhile is written down too; where that is
not near zero, the figure is not worth quoting.
"""
