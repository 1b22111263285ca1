"""The code that all benchmarks share.

Contestants run in pinned processes of their own (`contestant`, `worker`, `frameworks`) and take alternating turns.
"""
