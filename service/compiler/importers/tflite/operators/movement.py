"""Operators that move stored values and change none: RESHAPE, SQUEEZE, PAD; and CONCATENATION, which may rescale.

The kernels of the first three copy bytes and never look at the scales of input and output, so neither is done here.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def reshape(node: Node) -> relax.Var:
    """The new shape is the second input if it is an int32 vector, else an option; one size may be -1
    (`GetOutputShape` and `ResizeOutput` in tflite/kernels/reshape.cc)."""
    _same_storage(node)
    if node.has_input(1) and len(node.input(1).shape) == 1:
        target = tuple(int(size) for size in node.integers(1))
    else:
        target = _shape_option(node)
    total, known = math.prod(node.input(0).shape), math.prod(size for size in target if size != -1)
    node.require(
        target.count(-1) <= 1 and all(size >= -1 for size in target) and known > 0 and total % known == 0,
        f"makes {list(target)} of {list(node.input(0).shape)}",
    )
    shape = tuple(total // known if size == -1 else size for size in target)
    node.require(math.prod(shape) == total, f"makes {list(target)} of {list(node.input(0).shape)}")
    return node.emit(relax.op.reshape(node.expr(0), shape))


def _shape_option(node: Node) -> tuple[int, ...]:
    shape = node.option("new_shape")
    assert isinstance(shape, tuple)
    return () if shape == (0,) else shape  # how old converters wrote a scalar


def squeeze(node: Node) -> relax.Var:
    """Drops the named axes, or every axis of size 1 if none is named (`Prepare` in tflite/kernels/squeeze.cc)."""
    _same_storage(node)
    shape, named = node.input(0).shape, node.option("squeeze_dims")
    assert isinstance(named, tuple)
    rank = len(shape)
    node.require(
        all(-rank <= axis < rank and shape[axis] == 1 for axis in named), f"drops {list(named)} of {list(shape)}"
    )
    dropped = {axis % rank for axis in named} or {axis for axis in range(rank) if shape[axis] == 1}
    return node.emit(relax.op.reshape(node.expr(0), [size for axis, size in enumerate(shape) if axis not in dropped]))


def pad(node: Node) -> relax.Var:
    """Pads with the output's zero point; `[rank, 2]` amounts, before and after (`Eval` in tflite/kernels/pad.cc)."""
    _same_storage(node)
    shape, amounts = node.input(0).shape, node.integers(1)
    node.require(amounts.shape == (len(shape), 2), f"has paddings of {list(amounts.shape)}", node.input(1))
    node.require(bool((amounts >= 0).all()), "has negative paddings", node.input(1))
    node.expect_shape(tuple(size + int(sum(map(int, row))) for size, row in zip(shape, amounts, strict=True)))
    widths = [int(amount) for amount in amounts.reshape(-1)]
    return node.emit(relax.op.nn.pad(node.expr(0), widths, pad_value=node.out_type().zero_point))


def concatenation(node: Node) -> relax.Var:
    """uint8 inputs are rescaled to the output's quantization; int8 inputs have to have it already, and there is no
    fused activation (`Prepare` in tflite/kernels/concatenation.cc)."""
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    places = range(node.input_count)
    in_types, out_type = [node.in_type(place) for place in places], node.out_type()
    node.require({in_type.storage for in_type in in_types} == {out_type.storage}, "mixes storage types")
    if out_type.storage == "int8" and any(in_type != out_type for in_type in in_types):
        node.unsupported("joins int8 inputs of other scales than its output, which its kernel refuses")

    shapes = [node.input(place).shape for place in places]
    rank, named = len(shapes[0]), node.int_option("axis")
    node.require(-rank <= named < rank, f"has axis {named} of {rank}")
    axis = named % rank
    rests = [(*shape[:axis], None, *shape[axis + 1 :]) for shape in shapes]
    node.require(all(a == b for a, b in pairwise(rests)), f"joins shapes {shapes} along axis {axis}")
    return node.emit(ops.concatenate([node.expr(place) for place in places], in_types, out_type, axis))


def _same_storage(node: Node) -> None:
    source, target = node.input(0).dtype, node.output.dtype
    node.require(source == target, f"reads {source}, but writes {target}")
