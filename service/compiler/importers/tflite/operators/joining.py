"""Operators that join tensors (CONCATENATION, PACK) or split them (SPLIT, SPLIT_V, UNPACK)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn import ops


def concatenation(node: Node) -> relax.Expr:
    """Converts CONCATENATION. uint8 inputs are rescaled to the output's quantization; other inputs are copied and must
    already have it. A fused activation is not supported (`Prepare` in tflite/kernels/concatenation.cc).
    """
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    positions: Sequence[int] = range(node.input_count)
    shapes = [node.input(position).shape for position in positions]
    axis = movement.joined_axis(node, shapes, node.int_option("axis"))
    positions = [position for position in positions if shapes[position][axis]]  # empty parts add nothing
    if not positions:
        node.unsupported("joins only empty tensors")
    if not node.is_quantized:
        _check_dtypes(node)
        return node.emit(relax.op.concat([node.expr(position) for position in positions], axis))
    in_types, out_type = [node.in_type(position) for position in positions], node.out_type()
    node.require({in_type.storage for in_type in in_types} == {out_type.storage}, "mixes storage types")
    if out_type.storage != "uint8" and any(in_type != out_type for in_type in in_types):
        node.unsupported(
            f"joins {out_type.storage} inputs whose scales differ from its output's; LiteRT does not rescale them"
        )
    return node.emit(ops.concatenate([node.expr(position) for position in positions], in_types, out_type, axis))


def pack(node: Node) -> relax.Expr:
    """Converts PACK, which joins along a new axis; all tensors have the same quantization (`Prepare` in
    tflite/kernels/pack.cc).
    """
    if node.is_quantized:
        types = {node.in_type(index) for index in range(node.input_count)}
        node.require(types == {node.out_type()}, "packs tensors with different quantizations")
    _check_dtypes(node)
    return movement.stack(node, node.exprs(), node.int_option("axis"))


def _check_dtypes(node: Node) -> None:
    dtypes = {node.input(index).dtype for index in range(node.input_count)}
    node.require(dtypes == {node.output.dtype}, f"joins {', '.join(sorted(dtypes))} into {node.output.dtype}")


def split(node: Node) -> list[relax.Expr]:
    """Converts SPLIT. The first input is the axis and the second the data. All parts have the same size (`Prepare` in
    tflite/kernels/split.cc).
    """
    shape, count = node.input(1).shape, len(node.outputs)
    axis = node.axis(node.scalar(0), len(shape))
    node.require(
        shape[axis] % count == 0,
        f"cannot split axis {axis} of shape {list(shape)} into {count} equal parts",
        node.input(1),
    )
    return _parts(node, 1, [shape[axis] // count] * count, axis)


def split_v(node: Node) -> list[relax.Expr]:
    """Converts SPLIT_V. The inputs are the data, the sizes of the parts, one of which may be -1, and the axis
    (tflite/kernels/split_v.cc).
    """
    shape, sizes = node.input(0).shape, node.integers(1).reshape(-1).tolist()
    axis = node.axis(node.scalar(2), len(shape))
    rest = shape[axis] - sum(size for size in sizes if size != -1)
    sizes = [rest if size == -1 else size for size in sizes]
    movement.split_sizes(node, shape[axis], sizes, len(node.outputs))
    return _parts(node, 0, sizes, axis)


def unpack(node: Node) -> list[relax.Expr]:
    """Converts UNPACK, which has one output for each index of an axis. The outputs do not have that axis
    (tflite/kernels/unpack.cc).
    """
    shape = node.input(0).shape
    axis = node.axis(node.int_option("axis"), len(shape))
    node.require(
        shape[axis] == len(node.outputs), f"unpacks axis {axis} of shape {list(shape)} into {len(node.outputs)} outputs"
    )
    parts = _parts(node, 0, [1] * shape[axis], axis)
    rest = (*shape[:axis], *shape[axis + 1 :])
    return [
        node.emit(relax.op.reshape(part, rest), tensor=tensor) for part, tensor in zip(parts, node.outputs, strict=True)
    ]


def _parts(node: Node, index: int, sizes: Sequence[int], axis: int) -> list[relax.Expr]:
    """Cuts input `index` along `axis` and returns the parts. The kernels copy bytes, so all parts must have the same
    quantization.
    """
    source = node.input(index)
    parts = []
    for tensor, size, end in zip(node.outputs, sizes, accumulate(sizes), strict=True):
        begin = [0] * axis + [end - size] + [0] * (len(source.shape) - axis - 1)
        ends = [*source.shape[:axis], end, *source.shape[axis + 1 :]]
        parts.append(sliced(node, node.expr(index), begin, ends, tensor=tensor))
    return parts
