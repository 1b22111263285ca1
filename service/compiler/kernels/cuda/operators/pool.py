"""Pooling and means on GPUs. Instantiates the template `source/pool.cuh` for a geometry and a formula."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.average import average_of, mean_of, pooling_window
from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types import images
from service.compiler.kernels.cuda.types.epilogues import Code, average_code
from service.compiler.kernels.cuda.types.images import BLOCK, check_blocks
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import Image
from service.compiler.qnn.expressions.averages import Average
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.artifacts.call_plan import Launch

_QUADS = BLOCK // 4  # the number of threads that compute a block of channels of an output pixel
_THREADS = 128
# A large window is divided into shares. A different thread adds up each share.
_MOST_SHARES = 128  # the largest number of shares: a window is divided among all threads of a block
_LEAST_SHARES = 4  # with fewer shares, the threads of an output would not be whole warps
_LEAST_ELEMENTS = 4  # the least number of elements in a share
_BUSY_THREADS = 1024  # the number of threads that keep a multiprocessor busy
_UNROLLED = 32  # the number of elements of the largest window that is read without a loop
_AHEAD = 8  # the number of elements of a larger window that one iteration reads


def max_pool(gpu: Gpu, source: Image, destination: Image, operation: Operation) -> Kernel:
    """Returns the kernel of a `qnn.max_pool2d`. The largest value is the largest stored byte."""
    return _pool("max_pool", gpu, source, destination, operation, pooling_window(operation), None)


def avg_pool(gpu: Gpu, source: Image, destination: Image, operation: Operation, mode: Mode) -> Kernel:
    """Returns the kernel of a `qnn.avg_pool2d`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    return _pool(
        "avg_pool", gpu, source, destination, operation, pooling_window(operation), average_of(mode, operation)
    )


def mean(gpu: Gpu, source: Image, destination: Image, operation: Operation, mode: Mode) -> Kernel:
    """Returns the kernel of a `qnn.mean` over rows and columns.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or the mean is not over rows and columns.
    """
    window = Window((source.height, source.width))
    return _pool("mean", gpu, source, destination, operation, window, mean_of(mode, operation))


def _pool(
    family: str,
    gpu: Gpu,
    source: Image,
    destination: Image,
    operation: Operation,
    window: Window,
    average: Average | None,
) -> Kernel:
    check_blocks(source, destination)
    formula = Code("octet::Maximum", "") if average is None else average_code(average)
    reduction = formula.type if average is None else f"octet::Average<{formula.type}>"
    out, elements = bounds(operation.per_tensor("out_type")), window.kernel[0] * window.kernel[1]
    constants = (np.array([out.zero_point, out.low, out.high], np.int32), *formula.arrays)
    in_order = average is not None and average.dtype == "float32"
    shares = 1 if in_order else shares_of(gpu, destination, elements)
    threads = _THREADS if shares == 1 else shares * _QUADS
    unrolled = elements if elements <= _UNROLLED else _AHEAD
    body = [
        f"using Parts = {images.parts(destination, _QUADS)};",
        f"using Rows = {_span(window, 0, source.height, destination.height)};",
        f"using Columns = {_span(window, 1, source.width, destination.width)};",
        f"using Source = {images.blocks(source)};",
        f"using Destination = {images.blocks(destination)};",
        f"const {reduction} reduction({'nullptr' if average is None else 'constant_1'});",
        f"octet::pool<Parts, Rows, Columns, Source, Destination, {threads}, {shares}, {unrolled}>"
        "(source, constant_0, reduction, destination);",
    ]
    parameters = ["const octet::u8* __restrict__ source", *constant_parameters(constants)]
    function = kernel_function(threads, [*parameters, "octet::u8* __restrict__ destination"], body)
    text = translation_unit("pool.cuh", function, formula.definition)
    launch = Launch((images.part_blocks(destination, _QUADS, threads, shares), 1, 1), (threads, 1, 1), 0)
    return Kernel(
        family, DeviceFunction(text, launch), constants, destination.size_bytes, {"threads_of_window": shares}
    )


def shares_of(gpu: Gpu, destination: Image, elements: int) -> int:
    """Returns the number of threads that share a window of `elements` elements, so that the GPU is busy."""
    outputs = destination.batch * destination.blocks * destination.height * destination.width * _QUADS
    shares = 1
    while (
        shares < _MOST_SHARES
        and outputs * shares < gpu.multiprocessors * _BUSY_THREADS
        and elements >= 2 * shares * _LEAST_ELEMENTS
    ):
        shares *= 2
    return shares if shares >= _LEAST_SHARES else 1


def _span(window: Window, axis: int, size: int, outputs: int) -> str:
    numbers = (window.kernel[axis], window.strides[axis], window.padding[axis], size, outputs)
    return f"octet::Span<{', '.join(map(str, numbers))}>"
