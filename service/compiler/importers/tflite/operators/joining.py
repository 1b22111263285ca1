"""Operators that join tensors (CONCATENATION, PACK) or split them (SPLIT, SPLIT_V, UNPACK)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.common import same_dtype
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
    axis = node.axis(node.int_option("axis"), len(shapes[0]))
    rests = [(*shape[:axis], None, *shape[axis + 1 :]) for shape in shapes]
    one_rank = len({len(shape) for shape in shapes}) == 1
    fits = one_rank and all(a == b for a, b in pairwise(rests))
    node.require(fits, f"cannot join the shapes {shapes} along axis {axis}")
    positions = [position for position in positions if shapes[position][axis]]  # empty parts add nothing
    if not positions:
        node.unsupported("joins only empty tensors")
    if not node.is_quantized:
        return _join(node, [node.expr(position) for position in positions], axis)
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
    shapes = {node.input(index).shape for index in range(node.input_count)}
    node.require(len(shapes) == 1, f"packs tensors of the different shapes {sorted(map(list, shapes))}")
    (shape,) = shapes
    if node.is_quantized:
        types = {node.in_type(index) for index in range(node.input_count)}
        node.require(types == {node.out_type()}, "packs tensors with different quantizations")
    axis = node.axis(node.int_option("axis"), len(shape) + 1)
    cells = (*shape[:axis], 1, *shape[axis:])
    parts = [node.emit(relax.op.reshape(part, cells), f"part_{index}") for index, part in enumerate(node.exprs())]
    return _join(node, parts, axis)


def _join(node: Node, parts: list[relax.Expr], axis: int) -> relax.Expr:
    dtypes = {node.input(index).dtype for index in range(node.input_count)}
    node.require(dtypes == {node.output.dtype}, f"joins {', '.join(sorted(dtypes))} into {node.output.dtype}")
    return node.emit(relax.op.concat(parts, axis))


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
    fits = len(sizes) == len(node.outputs) and sum(sizes) == shape[axis] and min(sizes) >= 0
    node.require(fits, f"cannot split axis {axis} of shape {list(shape)} into {sizes}", node.input(1))
    if 0 in sizes:
        node.unsupported(f"splits axis {axis} of shape {list(shape)} into {sizes}, one of which has no elements")
    return _parts(node, 0, sizes, axis)


def unpack(node: Node) -> list[relax.Expr]:
    """Converts UNPACK, which has one output for each index of an axis. The outputs do not have that axis
    (tflite/kernels/unpack.cc).
    """
    same_dtype(node)
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
        node.require(tensor.dtype == source.dtype, f"reads {source.dtype}, but writes {tensor.dtype}", tensor)
        begin = [0] * axis + [end - size] + [0] * (len(source.shape) - axis - 1)
        ends = [*source.shape[:axis], end, *source.shape[axis + 1 :]]
        parts.append(sliced(node, node.expr(index), begin, ends, tensor=tensor))
    return parts
