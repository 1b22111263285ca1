"""Where a sliding window goes: padding, as ONNX's operator specification has it for Conv and the poolings."""

from __future__ import annotations

from service.compiler.importers.onnx.node import Node

_MAX_PADDED_ELEMENTS = (1 << 31) - 1


def strides_of(node: Node) -> tuple[int, int]:
    rows, columns = node.integers_attribute("strides", (1, 1), 1)
    return rows, columns


def dilation_of(node: Node) -> tuple[int, int]:
    rows, columns = node.integers_attribute("dilations", (1, 1), 1)
    return rows, columns


def padding_of(
    node: Node, image: tuple[int, ...], window: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Top, left, bottom, right. `image` is `[N, C, H, W]`.

    With `ceil_mode`, a last window that begins inside the image or its leading padding is taken whole.
    """
    sides = [_padding(node, axis, image[2 + axis], window[axis], strides[axis], dilation[axis]) for axis in (0, 1)]
    (top, bottom), (left, right) = sides
    height, width = image[2] + top + bottom, image[3] + left + right
    if image[0] * image[1] * height * width > _MAX_PADDED_ELEMENTS:
        node.unsupported(f"pads its input to {height} by {width}")
    return top, left, bottom, right


def _padding(node: Node, axis: int, size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    scheme = node.attribute("auto_pad", "NOTSET")
    reach = (window - 1) * dilation + 1
    if scheme in ("SAME_UPPER", "SAME_LOWER"):
        total = max(0, (-(-size // stride) - 1) * stride + reach - size)
        less, more = total // 2, total - total // 2
        return (less, more) if scheme == "SAME_UPPER" else (more, less)
    node.require(scheme in ("NOTSET", "VALID"), f"has auto_pad {scheme}")
    pads = node.integers_attribute("pads", (0, 0, 0, 0), 0) if scheme == "NOTSET" else (0, 0, 0, 0)
    before, after = pads[axis], pads[2 + axis]
    node.require(reach <= size + before + after, f"has a window of {reach} for {size + before + after} padded elements")
    if node.attribute("ceil_mode", 0):
        count = -(-(size + before + after - reach) // stride) + 1
        count -= (count - 1) * stride >= size + before
        after = max(after, (count - 1) * stride + reach - size - before)
    return before, after
