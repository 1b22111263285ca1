"""The geometry of sliding windows: padding and output sizes, as tflite/kernels/padding.h computes them."""

from __future__ import annotations

from collections.abc import Sequence

SAME, VALID = 0, 1  # Padding in schema.fbs


def output_size(scheme: int, size: int, window: int, stride: int, dilation: int) -> int:
    """Returns the number of window positions along one axis (`ComputeOutSize`). The number is 0 or less if the window
    does not fit.
    """
    reach = (window - 1) * dilation + 1
    return -(-size // stride) if scheme == SAME else (size + stride - reach) // stride


def padding_of(scheme: int, size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    """Returns the padding before and after one axis (`ComputePaddingWithOffset`). If the total is odd, the additional
    element goes after.
    """
    reach = (window - 1) * dilation + 1
    total = max((output_size(scheme, size, window, stride, dilation) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def padding_2d(
    scheme: int, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, int, int, int]:
    """Returns the padding: top, left, bottom, right."""
    (top, bottom), (left, right) = (
        padding_of(scheme, *axis) for axis in zip(sizes, windows, strides, dilations, strict=True)
    )
    return top, left, bottom, right
