"""The physical limit: how many multiply-accumulates a core does in a second when it does nothing else.

The loops (`loops`) are written in TVM's tensor IR, because there may be no C compiler, and depend on nothing of
`service`: what measures is not made of what is measured. They take turns with the contestants;
`python -m benchmarks.contest --peaks-only` runs nothing but them.
"""
