"""Measurements. README.md lists them and describes how each is made.

Each figure comes with the model, threads, cores and numerics mode that it was measured with. Each contestant runs in
its own process, pinned to the same cores. Contestants take turns, A B C, then C B A, and so on, so that a machine that
gets slower or busier affects all of them alike. The CPU time of other programs during the measurement is recorded too;
if it is not near zero, the figure is not worth quoting.
"""
