"""Measurements: `python -m benchmarks.build_and_serve MODEL` and `python -m benchmarks.stock_tvm MODEL`.

Each prints Markdown, and each row says what was measured: model, threads, cores, numerics mode. Whoever is compared
runs in a process of its own, pinned to the same cores, and they take turns: A B C, C B A, and so on, so that a machine
that gets slower or busier does so for all of them. Beside each figure stands how many CPUs other programs kept busy
meanwhile; where that is not near zero, the figure is not worth quoting.
"""
