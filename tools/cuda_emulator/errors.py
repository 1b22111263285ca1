"""The errors of the emulation of CUDA kernels."""

from __future__ import annotations

from unittest import SkipTest


class NoEmulator(SkipTest):
    """This machine cannot emulate GPUs. A test that raises this error is skipped."""


class UnknownDeviceCode(ValueError):
    """The source uses a feature that the emulation does not support."""


class DeviceFault(RuntimeError):
    """A launch did something forbidden. The message contains the thread, the action and the source location."""
