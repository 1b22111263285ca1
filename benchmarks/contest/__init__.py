"""The contest: Octet and its peers on the same models and the same cores, in turns, in one run.

    python -m benchmarks.contest

`contestants` lists the contestants. Each is a process (`harness.worker`) in its own environment, which loads one model
with one of `harness.frameworks` and keeps running. `harness.rounds` gives them turns of a fraction of a second and
watches the machine's other load. The result is a file of JSON lines (`records`), from which `benchmarks.contest.report`
makes tables and a plot.
"""
