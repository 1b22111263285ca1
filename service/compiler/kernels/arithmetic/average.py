"""Chooses the expressions of averages."""

from __future__ import annotations

from service.compiler.kernels.arithmetic.numerics import STORED, bounds, expressed
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Window
from service.compiler.qnn.expressions.averages import Average, IntegerMean
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.expressed import Averages
from service.compiler.qnn.operation import Operation

_LARGEST = 1 << 30  # the limit of a sum
_LARGEST_DIVIDEND = 1 << 22  # the limit of a dividend of `Ops.quotient`


def average_of(mode: Mode, operation: Operation) -> Average:
    """Returns the averaging formula of `mode` for `qnn.avg_pool2d`.

    Raises:
        Declined: no kernel computes this formula.
    """
    rows, columns = operation.ints("pool_size", 2, 1)
    return _average(mode, operation, rows * columns)


def mean_of(mode: Mode, operation: Operation) -> Average:
    """Returns the formula of `mode` for the mean over an image.

    Raises:
        Declined: no kernel computes this formula, or the mean is not over rows and columns.
    """
    shape, _ = operation.tensor(0)
    if len(shape) != 4 or [int(axis) for axis in operation.attr("axes")] != [1, 2]:
        raise Declined("it is not the mean over rows and columns")
    return _average(mode, operation, shape[1] * shape[2])


def _average(mode: Mode, operation: Operation, count: int) -> Average:
    for name in ("in_type", "out_type"):
        bounds(operation.per_tensor(name))
    average = expressed(mode, operation, Averages).average(operation, STORED, count)
    if 256 * count >= (_LARGEST_DIVIDEND if isinstance(average, IntegerMean) else _LARGEST):
        raise Declined(f"a window of {count} elements is too large")
    return average


def pooling_window(operation: Operation) -> Window:
    """Returns the window of a `qnn.max_pool2d` or a `qnn.avg_pool2d`."""
    rows, columns = operation.ints("pool_size", 2, 1)
    down, right = operation.ints("strides", 2, 1)
    top, left, _, _ = operation.ints("padding", 4, 0)
    return Window((rows, columns), (down, right), (1, 1), (top, left))
