"""QGemm (com.microsoft): a product of stored values with a bias."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import dynamic, matrix
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.qnn.graph import shape_of


def qgemm(node: Node) -> Value:
    """Inputs: A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point.

    Multiplies `[M, K]` by `[K, N]`, each of which may be transposed, and adds C, int32 at the accumulators' scale,
    which broadcasts to `[M, N]`. Without y_scale, the output is float32. `alpha` multiplies a_scale.
    """
    other = node.shape(3)
    node.require(len(other) == 2, f"has weights {list(other)}, which are not a matrix", node.name(3))
    changed: dict[int, Value] = {}
    if node.attribute("transA", 0):
        node.require(len(node.shape(0)) == 2, f"transposes {list(node.shape(0))}, which is not a matrix", node.name(0))
        changed[0] = movement.transpose(node, node.operand(), (1, 0))
    alpha = np.float32(node.attribute("alpha", 1.0))
    if alpha != 1:
        node.require_supported(bool(alpha > 0), f"has an alpha of {alpha}, which cannot be compiled")
        changed[1] = np.asarray(alpha * node.data(1))
    made = derived(node, changed) if changed else node
    transposed = bool(node.attribute("transB", 0))
    columns = other[0 if transposed else 1]
    bias = node.shape(6) if node.has(6) else (columns,)
    is_row = (not node.has(6) or node.constant_data(6) is not None) and bias in ((columns,), (1, columns))
    if is_row and node.constant_data(3) is not None:
        return matrix.product(made, transposed=transposed, bias=6, output=7)
    return _composed(made, transposed=transposed)


def _composed(node: Node, *, transposed: bool) -> relax.Var:
    """Converts a QGemm whose bias is not a constant row, or whose second operand is computed. The sums are scaled in
    float32, as MLAS does (mlas/lib/qpostprocessor.cpp).
    """
    if transposed:
        value = node.expr(3) if node.known_value(3) is None else node.known_value(3)
        node = derived(node, {3: movement.transpose(node, value, (1, 0))})
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=1)
    sums = dynamic.integer_product(
        node, node.expr(0), in_type.storage, weights=3, point=in_type.zero_point, weight_point=5
    )
    if node.has(6):
        shape, given = shape_of(sums), node.shape(6)
        node.require(node.dtype(6) == "int32", f"has a bias of {node.dtype(6)}, not int32", node.name(6))
        fits = len(given) <= 2 and all(size in (1, own) for size, own in zip(given[::-1], shape[::-1], strict=False))
        node.require(fits, f"has a bias {list(given)} for sums {list(shape)}", node.name(6))
        sums = node.emit(relax.op.add(sums, node.expr(6)), "biased")
    scales = np.float32(in_type.scale) * np.array(weight_type.scales, np.float32)
    real = node.emit(relax.op.astype(sums, "float32"), "real")
    if not node.has(7):
        return node.emit(relax.op.multiply(real, node.literal(scales)))
    out = node.output_type(7, 8, in_type.storage)
    factors = node.literal(scales / np.float32(out.scale))
    scaled = node.emit(relax.op.multiply(real, factors), "scaled")
    low, high = (relax.const(np.float32(bound - out.zero_point)) for bound in (out.min, out.max))
    bounded = node.emit(relax.op.minimum(node.emit(relax.op.maximum(scaled, low), "above"), high), "bounded")
    rounded = node.emit(relax.op.astype(node.emit(relax.op.round(bounded), "rounded"), "int32"), "steps")
    moved = node.emit(relax.op.add(rounded, node.literal(np.array(out.zero_point, np.int32))), "stored")
    return node.typed(node.emit(relax.op.astype(moved, out.dtype)), out)


GEMM: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.QGemm": (qgemm, (6, 9)),
}
