"""Compiles kernels to machine code with NVRTC."""

from __future__ import annotations

import pytest

from service.compiler.kernels.cuda.nvrtc import cubin, library_path
from service.compiler.kernels.kernel import DeviceFunction, Kernel

CAPABILITIES = ("sm_61", "sm_75", "sm_90")  # the oldest, the first with 8-bit matrix instructions, and the newest

needs_nvrtc = pytest.mark.skipif(library_path() is None, reason="NVRTC is missing: pip install 'octet-serve[cuda]'")


def compile_for(capability: str, kernel: Kernel) -> bytes:
    """Returns the machine code, an ELF file that defines the kernel's symbol.

    Raises:
        BuildFailed: NVRTC refuses the source.
    """
    assert isinstance(kernel.function, DeviceFunction)
    code = cubin(kernel.function.source, capability, kernel.symbol)
    assert code.startswith(b"\x7fELF")
    assert kernel.symbol.encode() in code
    return code
