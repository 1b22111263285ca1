"""Products of two matrices."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.ops.real import require_float_sums
from service.compiler.qnn.types import QuantizedType

Shape = tuple[int, ...]


def matmul(
    lhs: relax.Expr,
    rhs: relax.Expr,
    lhs_type: QuantizedType,
    rhs_type: QuantizedType,
    *,
    accum_dtype: str = "int32",
    length: relax.Expr | None = None,
) -> relax.Call:
    """Multiplies `[…, M, K]` by `[…, K, N]`, both less their zero points, giving sums of products `[…, M, N]`.

    Dimensions before the last two broadcast as NumPy's do. Both types are per-tensor. (`with_operands` turns such a
    call into its simulated form.)

    Args:
        accum_dtype: int32, or int64 for 16-bit operands.
        length: the number of products to add, `[1]` int32; None for all K. The other products have no effect.
    """
    operands = [lhs, rhs] if length is None else [lhs, rhs, length]
    return call_of("matmul", operands, lhs_type=lhs_type, rhs_type=rhs_type, accum_dtype=accum_dtype)


def real_matmul(
    lhs: relax.Expr,
    rhs: relax.Expr,
    bias: relax.Expr | None = None,
    *,
    operand_dtype: str = "float32",
    length: relax.Expr | None = None,
) -> relax.Call:
    """Multiplies `[…, M, K]` by `[…, K, N]` and adds a bias `[N]`, all float32, giving `[…, M, N]`.

    Dimensions before the last two broadcast. Each result starts as 0, the products are added one after the other by
    fused multiply-adds, and then the bias is added.

    Args:
        operand_dtype: as for `real_conv2d`.
        length: the number of products to add, `[1]` int32; None for all K. The other products have no effect. A product
            with a length has no bias.
    """
    operands = [lhs, rhs, *(each for each in (bias, length) if each is not None)]
    return call_of("real_matmul", operands, accum_dtype="float32", operand_dtype=operand_dtype)


def block_matmul(
    x: relax.Expr,
    stored: relax.Expr,
    scales: relax.Expr,
    points: relax.Expr,
    bias: relax.Expr | None,
    *,
    block_size: int,
    bits: int,
) -> relax.Call:
    """A `real_matmul` of float32 `[…, M, K]` by weights. Each weight is (float32(stored) - point) * scale, and each
    step is rounded to float32.

    Args:
        stored: `[K, N]` uint8, values of `bits` bits.
        scales, points: `[K / block_size, N]`, rounded up: float32 scales, and uint8 zero points like `stored`.
        bias: `[N]` float32.
        block_size: the number of rows of `stored` that share one scale and one zero point in each column.
        bits: 2, 4 or 8.
    """
    operands = [x, stored, scales, points, *([] if bias is None else [bias])]
    return call_of("block_matmul", operands, block_size=block_size, bits=bits, accum_dtype="float32")


def length_of(operation: Operation) -> relax.Expr | None:
    """Returns the operand of a `matmul` or `real_matmul` that contains the number of products to add, if any."""
    operands = operation.call.args[2:]
    return next((each for each in operands if str(each.ty.dtype) == "int32"), None)


def _matmul(o: Operation) -> relax.TensorType:
    if o.count(2, 3) == 3:
        _require_length(o)
    lhs, rhs = o.stored(0, o.per_tensor("lhs_type")), o.stored(1, o.per_tensor("rhs_type"))
    accum_dtype = str(o.attr("accum_dtype"))
    allowed = ("float32",) if o.is_simulated else ("int32", "int64")
    o.require(accum_dtype in allowed, f"cannot accumulate in {accum_dtype}")
    return tensor_type(_product(o, lhs, rhs), accum_dtype)


def _real_matmul(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    (lhs, lhs_dtype), (rhs, rhs_dtype) = o.tensor(0), o.tensor(1)
    o.require(lhs_dtype == rhs_dtype == "float32", f"operands must be float32, not {lhs_dtype} and {rhs_dtype}")
    require_float_sums(o)
    shape = _product(o, lhs, rhs)
    if length_of(o) is not None:
        _require_length(o)
    elif len(o.call.args) == 3:
        o.require(o.tensor(2, rank=1) == (shape[-1:], "float32"), f"the bias {o.tensor(2)} does not fit")
    return tensor_type(shape, "float32")


def _block_matmul(o: Operation) -> relax.TensorType:
    count = o.count(4, 5)
    (lhs, lhs_dtype), (rhs, rhs_dtype), size = o.tensor(0), o.tensor(1, rank=2), o.integer("block_size")
    o.require(lhs_dtype == "float32", f"the input must be float32, not {lhs_dtype}")
    o.require(
        rhs_dtype == "uint8" and o.integer("bits") in (2, 4, 8), f"cannot store {o.integer('bits')} bits as {rhs_dtype}"
    )
    o.require(size > 0, f"block_size {size} is not positive")
    shape, blocks = _product(o, lhs, rhs), (-(-rhs[0] // size), rhs[1])
    o.require(o.tensor(2) == (blocks, "float32"), f"scales {o.tensor(2)} do not fit {blocks} blocks")
    o.require(o.tensor(3) == (blocks, "uint8"), f"zero points {o.tensor(3)} do not fit {blocks} blocks")
    o.require(count == 4 or o.tensor(4) == (shape[-1:], "float32"), "the bias must have one float32 per column")
    return tensor_type(shape, "float32")


def _require_length(o: Operation) -> None:
    o.require(o.tensor(2) == ((1,), "int32"), "the length must be one int32")


def _product(o: Operation, lhs: Shape, rhs: Shape) -> Shape:
    o.require(len(lhs) >= 2 and len(rhs) >= 2, f"operands {list(lhs)} and {list(rhs)} must be matrices")
    o.require(lhs[-1] == rhs[-2], f"rows of {lhs[-1]} elements do not fit columns of {rhs[-2]}")
    try:
        batch = np.broadcast_shapes(lhs[:-2], rhs[:-2])
    except ValueError:
        o.fail(f"{list(lhs)} and {list(rhs)} do not broadcast")
    return (*batch, lhs[-2], rhs[-1])


RULES: dict[str, Rule] = {
    "block_matmul": _block_matmul,
    "matmul": _matmul,
    "real_matmul": _real_matmul,
}
