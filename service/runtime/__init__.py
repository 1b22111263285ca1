"""Loads artifacts and runs them, with `liboctet_runtime` and NumPy only.

    model = service.runtime.load("path/to/artifact")
    scores = model(image)

A folder that was compiled for several shapes is one model, too: `service.runtime.load_model`.

Never imports the compiler, nor TVM, nor tvm-ffi.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.runtime.bucketed import BucketedModel
    from service.runtime.loading import load, load_files, load_model
    from service.runtime.model import Model
    from service.runtime.verification import compare, verify

__all__ = ["BucketedModel", "Model", "compare", "load", "load_files", "load_model", "verify"]

_MODULES = {
    "bucketed": {"BucketedModel"},
    "loading": {"load", "load_files", "load_model"},
    "model": {"Model"},
    "verification": {"compare", "verify"},
}


def __getattr__(name: str) -> Any:
    """Imports a module when one of its names is used: reading artifacts needs no NumPy, and few programs verify."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
