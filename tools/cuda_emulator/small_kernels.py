"""Runs small kernels written by tests, with typedefs of the fixed-width types."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tools.cuda_emulator.emulated_kernel import EmulatedKernel

TYPES = """
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""


def run(
    parameters: str,
    body: str,
    *operands: NDArray[Any],
    threads: int | tuple[int, int, int] = 32,
    blocks: int = 1,
    shared_bytes: int = 0,
    seed: int = 0,
    sanitize: bool = True,
    before: str = "",
) -> None:
    """Runs `extern "C" __global__ void kernel(PARAMETERS) { BODY }` on `operands`, which the kernel may write.

    Raises:
        DeviceFault: the emulation found a fault.
    """
    source = f'{TYPES}{before}\nextern "C" __global__ void kernel({parameters}) {{\n{body}\n}}\n'
    block = (threads, 1, 1) if isinstance(threads, int) else threads
    kernel = EmulatedKernel(source, "kernel", sanitize=sanitize)
    kernel.launch((blocks, 1, 1), block, shared_bytes, operands, seed=seed)
