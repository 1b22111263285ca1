"""Octet: serve models that are already quantized to 8 bits, exactly and at the speed of the hardware."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("octet-serve")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
