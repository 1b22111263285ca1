"""The contest: Octet and its peers on the same models, on the same cores, by turns, in one run.

    python -m benchmarks.contest

`contestants` lists the contestants; each is a process (`worker`) in its own environment, which loads one model by one
of `frameworks` and stays. `rounds` gives them turns of a fraction of a second and watches what else the machine does.
What comes out is a file of JSON lines (`records`), of which `benchmarks.report` makes tables and a plot.
"""
