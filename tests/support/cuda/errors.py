"""What goes wrong with CUDA sources on the CPU."""

from __future__ import annotations


class UnknownDeviceCode(ValueError):
    """The source has something that the emulation does not know."""


class DeviceFault(RuntimeError):
    """A launch did what no kernel may: the words say which thread, what and where."""
