"""Loads artifacts and runs them, with `liboctet_runtime` and NumPy only.

    model = service.runtime.load("path/to/artifact")
    scores = model(image)

Never imports the compiler, nor TVM, nor tvm-ffi.
"""

from service.runtime.loading import load, load_files
from service.runtime.model import Model
from service.runtime.verification import compare, verify

__all__ = ["Model", "compare", "load", "load_files", "verify"]
