"""Import restrictions of a process."""

from __future__ import annotations

import sys
from typing import cast


def without_torch() -> None:
    """Makes `import torch` fail here, as where it is not installed.

    tvm_ffi imports torch wherever it can: 0.2 GB and seconds, of which nothing of ours makes use. PyTorch is installed
    for the child alone that asks it for its answers (`compiler.references`).
    """
    # What the import system says to put there: docs.python.org, "The module cache".
    cast("dict[str, object]", sys.modules).setdefault("torch", None)
