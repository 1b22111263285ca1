"""The `octet` command: a client of the HTTP API, and the commands that work without a server.

`commands` contains the commands, and `command_line` registers the commands. The other modules contain code that the
commands share: the client of the API, and printing. The application logic is in the other packages.
"""

import os

# NumPy's BLAS library starts its threads when it is loaded. Nothing here multiplies float matrices, and `octet serve`
# forks, which is safe only in a process with one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import service.core.system.own_threads  # noqa: F401  counts the threads that exist before Octet starts any
from service.cli.command_line import main
from service.core.system.imports import block_torch

block_torch()

__all__ = ["main"]
