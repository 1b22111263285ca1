"""Import restrictions of a process."""

from __future__ import annotations

import sys
from typing import cast


def block_torch() -> None:
    """Makes `import torch` fail in this process, as if PyTorch were not installed.

    tvm_ffi imports torch if torch is installed, which takes 0.2 GB of memory and several seconds. Octet uses PyTorch
    only in the child process that runs it as a reference runtime (`compiler.references`).
    """
    # None blocks the import: docs.python.org, The import system, "The module cache".
    cast("dict[str, object]", sys.modules).setdefault("torch", None)
