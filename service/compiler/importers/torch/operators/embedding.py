"""Tables of rows that indices select: `Embedding` and `EmbeddingBag`, of real values or of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.real import operand
from service.compiler.importers.torch.tensors import Rows, Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_MOST_IN_BAG = 256  # each row of a bag becomes an operator
_SUM, _MEAN = 0, 1
# (rows that were read, the sum so far) -> the new sum
Add = Callable[[relax.Expr, relax.Expr | None], relax.Expr]


def _places(node: Node, indices: Any) -> relax.Expr:
    places = node.tensor(indices)
    node.require_supported(places.dtype in ("int32", "int64"), f"has indices of {places.dtype}, not int32 or int64")
    return places.expr


def _embedding_of_rows(node: Node, weight: Any, indices: Any, pruned_weights: Any = False) -> Value:
    rows = _rows(node, weight, pruned_weights)
    return node.value(_read(node, rows, _places(node, indices), None), None)


def _rows(node: Node, weight: Any, pruned: Any) -> Rows:
    if not isinstance(weight, Rows) or node.flag(pruned):
        node.unsupported("has a pruned table, or one that is not packed")
    return weight


def _read(node: Node, rows: Rows, places: relax.Expr, total: relax.Expr | None) -> relax.Expr:
    """Returns rows as real values, plus a sum. The stored values stay in bytes: as in FBGEMM's `EmbeddingSpMDM`, the
    offset is added to the sum, and then the product in one fused multiply-add.
    """
    column = [*shape_of(places), 1]
    stored = node.emit(relax.op.take(relax.const(rows.data), places, 0, mode="clip"), "stored")
    values = node.emit(relax.op.astype(stored, "float32"), "values")
    scale, offset = (
        node.emit(
            relax.op.reshape(node.emit(relax.op.take(relax.const(each), places, 0, mode="clip"), "row"), column),
            "row",
        )
        for each in (rows.scales, rows.offsets)
    )
    moved = offset if total is None else node.emit(relax.op.add(total, offset), "moved")
    return node.emit(ops.real_fma(values, scale, moved), "rows")


def _bag_of_rows(
    node: Node,
    weight: Any,
    indices: Any,
    offsets: Any = None,
    scale_grad_by_freq: Any = False,
    mode: Any = 0,
    pruned_weights: Any = False,
    per_sample_weights: Any = None,
    compressed_indices_mapping: Any = None,
    include_last_offset: Any = False,
) -> Value:
    rows = _rows(node, weight, pruned_weights)
    node.require_supported(node.integer(mode) == _SUM, "computes something other than sums")

    def add(places: relax.Expr, total: relax.Expr | None) -> relax.Expr:
        return _read(node, rows, places, total)

    columns = rows.data.shape[1]
    return _bags(node, indices, offsets, per_sample_weights, include_last_offset, add, columns, mean=False)


def _bag(
    node: Node,
    weight: Any,
    indices: Any,
    offsets: Any = None,
    scale_grad_by_freq: Any = False,
    mode: Any = 0,
    sparse: Any = False,
    per_sample_weights: Any = None,
    include_last_offset: Any = False,
    padding_idx: Any = None,
) -> list[Any]:
    """Converts `aten::embedding_bag`, which has three more results that only a backward pass reads."""
    table, kind = operand(node, weight), node.integer(mode)
    node.require_supported(kind in (_SUM, _MEAN), "computes something other than sums and means")
    node.require_supported(padding_idx in (None, -1), "leaves out the rows of one index")

    def add(places: relax.Expr, total: relax.Expr | None) -> relax.Expr:
        taken = node.emit(relax.op.take(table, places, 0, mode="clip"), "rows")
        return taken if total is None else node.emit(relax.op.add(total, taken), "sum")

    columns = shape_of(table)[1]
    made = _bags(node, indices, offsets, per_sample_weights, include_last_offset, add, columns, mean=kind == _MEAN)
    return [made, None, None, None]


def _bags(
    node: Node,
    indices: Any,
    offsets: Any,
    weights: Any,
    include_last: Any,
    add: Add,
    columns: int,
    *,
    mean: bool,
) -> Value:
    """Adds the rows of each bag. Bags are the rows of `indices`, or begin at constant offsets."""
    node.require_supported(weights is None, "multiplies its rows by weights")
    places = _places(node, indices)
    shape = shape_of(places)
    if len(shape) == 2:
        sizes = [shape[1]] * shape[0]
        places = node.emit(relax.op.reshape(places, [shape[0] * shape[1]]), "places")
    else:
        sizes = _sizes(node, offsets, shape[0], with_last=node.flag(include_last))
    node.require_supported(max(sizes) <= _MOST_IN_BAG, f"adds {max(sizes)} rows; at most {_MOST_IN_BAG} in a bag")
    if len({*sizes}) == 1 and sizes[0] > 0:
        return node.value(_divided(node, _total(node, places, 0, len(sizes), sizes[0], add), sizes[0], mean=mean), None)
    bags, start = [], 0
    for size in sizes:
        if size == 0:
            bags.append(relax.const(np.zeros((1, columns), np.float32)))
        else:
            bags.append(_divided(node, _total(node, places, start, 1, size, add), size, mean=mean))
        start += size
    return node.value(relax.op.concat(bags, axis=0), None)


def _total(node: Node, places: relax.Expr, start: int, count: int, size: int, add: Add) -> relax.Expr:
    """Returns the sums of `count` adjacent bags of `size` rows each."""
    total: relax.Expr | None = None
    for index in range(size):
        first = start + index
        part = relax.op.strided_slice(places, [0], [first], [first + (count - 1) * size + 1], [size])
        total = add(node.emit(part, "places"), total)
    assert total is not None
    return total


def _divided(node: Node, total: relax.Expr, size: int, *, mean: bool) -> relax.Expr:
    if not mean:
        return total
    return node.emit(relax.op.divide(total, relax.const(np.array(size, np.float32))), "mean")


def _sizes(node: Node, offsets: Any, count: int, *, with_last: bool) -> list[int]:
    if not isinstance(offsets, Tensor) or offsets.data.ndim != 1 or offsets.data.dtype.kind != "i":
        node.unsupported("has bags whose offsets are not known while importing")
    ends = offsets.data.tolist() if with_last else [*offsets.data.tolist(), count]
    sizes = np.diff(ends).tolist()
    fits = bool(sizes) and ends[0] == 0 and min(sizes) >= 0 and ends[-1] == count
    node.require(fits, f"has offsets that do not fit its {count} indices")
    return [int(each) for each in sizes]


def _prepack(_: Node, weight: Any, *__: Any) -> Any:
    return weight


RULES: dict[str, Callable[..., Any]] = {
    "aten::embedding_bag": _bag,
    "quantized::embedding_4bit": _embedding_of_rows,
    "quantized::embedding_bag_4bit": _bag_of_rows,
    "quantized::embedding_bag_byte": _bag_of_rows,
    "quantized::embedding_bag_prepack": _prepack,
    "quantized::embedding_byte": _embedding_of_rows,
}
