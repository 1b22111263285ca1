"""The physical limit: the number of multiply-accumulates that a core computes per second if it does nothing else.

The loops (`loops`) are written in TVM's tensor IR, because a C compiler may be missing, and do not depend on `service`:
the measuring code must not share code with the measured code. They take turns with the contestants;
`python -m benchmarks.contest --peaks-only` runs only them.
"""
