"""Loads artifacts and runs them, with TVM's runtime library only.

    model = service.runtime.load("path/to/artifact")
    scores = model(image)

Never imports the compiler. `TVM_USE_RUNTIME_LIB` is set here, before TVM is: a process that has not loaded TVM yet gets
its 3 MB runtime instead of the 260 MB compiler.
"""

import os

os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")

from service.runtime.loading import load, load_files
from service.runtime.model import Model
from service.runtime.verification import compare, verify

__all__ = ["Model", "compare", "load", "load_files", "verify"]
