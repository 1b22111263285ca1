"""Octet: serve models that are already quantized to 8 bits, exactly and at the speed of the hardware."""

__version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Returns `__version__`, read on first use: reading it takes longer than importing the runtime."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("octet-serve")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0.0.0"
