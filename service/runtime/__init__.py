"""Loads artifacts and runs them, with `liboctet_runtime` and NumPy only.

    model = service.runtime.load("path/to/artifact")
    scores = model(image)

A folder that was compiled for several shapes is one model, too: `service.runtime.load_model`.

Never imports the compiler, nor TVM, nor tvm-ffi.
"""

from typing import TYPE_CHECKING, Any

from service.runtime.bucketed import BucketedModel
from service.runtime.loading import load, load_files, load_model
from service.runtime.model import Model

if TYPE_CHECKING:
    from service.runtime.verification import compare, verify

__all__ = ["BucketedModel", "Model", "compare", "load", "load_files", "load_model", "verify"]


def __getattr__(name: str) -> Any:
    """Imports what few programs need, when it is asked for."""
    if name not in ("compare", "verify"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from service.runtime import verification

    return getattr(verification, name)
