"""The `octet` command. A client of the HTTP API, and what works without a server; it holds no logic of its own."""

import os

# NumPy's library of real products makes its threads when it is loaded. Nothing here multiplies real matrices, and
# `octet serve` is a process that forks, which it may only with one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import service.core.own_threads  # noqa: F401  counts those that are there before ours
from service.cli.commands import main
from service.core.imports import without_torch

without_torch()

__all__ = ["main"]
