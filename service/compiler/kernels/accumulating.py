"""Reads the properties of a layer from its operator `qnn.conv2d` or `qnn.dense`."""

from __future__ import annotations

from collections.abc import Sequence

from service.compiler.kernels.group import Demand, Group, shape_of, stored_zero_point
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import Halo
from service.compiler.qnn.numerics.sums.accumulate import centered
from service.compiler.qnn.operation import Operation, value_of
from service.core.models.arrays import Array


def check_accumulating(core: Operation) -> None:
    """Checks that the layer sums products with constant weights in int32.

    Raises:
        Declined: the sums are not int32, or the weights are not constant.
    """
    if str(core.attr("accum_dtype")) != "int32":
        raise Declined(f"it accumulates in {core.attr('accum_dtype')}")
    if any(value_of(arg) is None for arg in core.call.args[1:]):
        raise Declined("its weights are not constant")


def demands_of(group: Group, produced: Sequence[bool], together: int) -> list[Demand]:
    """Returns the layouts in which a layer needs its inputs.

    `together` is the number of channels that one instruction multiplies. An image that is not the output of a kernel,
    and whose channels are not a multiple of `together`, is packed (all channels of a pixel are contiguous). In blocks
    of channels, such an image, for example an RGB photo, would be mostly filler.
    """
    core = group.core
    odd = shape_of(group.inputs[0])[-1] % together != 0
    packed = not produced[0] and groups_of(core) == 1 and odd and window_of(core).dilation[1] == 1
    fill = stored_zero_point(core.per_tensor("in_type"))
    return [Demand(packed, Halo(*padding_of(core)), fill), *(Demand() for _ in group.inputs[1:])]


def weights_of(core: Operation) -> Array:
    """Returns the weights `[O, KH, KW, C]` as integers, with the zero point subtracted."""
    stored = value_of(core.call.args[1])
    assert stored is not None
    weights = centered(stored, core.quantized("weight_type")).astype("int32")
    return weights if weights.ndim == 4 else weights[:, None, None, :]


def bias_of(core: Operation) -> Array | None:
    return value_of(core.call.args[2]) if len(core.call.args) > 2 else None


def groups_of(core: Operation) -> int:
    return core.integer("groups") if core.name == "qnn.conv2d" else 1


def is_depthwise(core: Operation) -> bool:
    """Returns true if each channel has its own filter. A convolution of a single channel is not depthwise."""
    if groups_of(core) == 1:
        return False
    filters, _, _, per_group = shape_of(core.call.args[1])
    return per_group == 1 and filters == groups_of(core)


def padding_of(core: Operation) -> tuple[int, ...]:
    """Returns the padding (top, left, bottom, right)."""
    return core.ints("padding", 4, 0) if core.name == "qnn.conv2d" else (0, 0, 0, 0)


def window_of(core: Operation) -> Window:
    if core.name == "qnn.dense":
        return Window((1, 1))
    _, kernel_h, kernel_w, _ = shape_of(core.call.args[1])
    (stride_h, stride_w), (step_h, step_w) = core.ints("strides", 2, 1), core.ints("dilation", 2, 1)
    top, left, _, _ = padding_of(core)
    return Window((kernel_h, kernel_w), (stride_h, stride_w), (step_h, step_w), (top, left))
