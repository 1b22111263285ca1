"""The simulated form: tensors of stored integers as float32.

A tensor of a quantized type contains the integers that it would store, as float32. `conv2d`, `conv2d_transpose`,
`dense` and `matmul` with `accum_dtype="float32"` take such operands.
"""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType

MOST_BITS = {"int32": 32, "int64": 64}  # the width of an accumulator


def simulated_quantize(x: relax.Expr, out_type: QuantizedType) -> relax.Call:
    """Returns the integers that `quantize` would store, as float32."""
    return call_of("simulated_quantize", [x], out_type=out_type)


def simulated_dequantize(x: relax.Expr, in_type: QuantizedType) -> relax.Call:
    """Returns the result of `dequantize`, for stored values of `in_type` in a float32 tensor."""
    return call_of("simulated_dequantize", [x], in_type=in_type)


def simulated_accumulate(sums: relax.Expr, bits: int, dtype: str = "int32") -> relax.Call:
    """Converts float32 sums to accumulators of `dtype`, wrapped around in two's complement of `bits`."""
    return call_of("simulated_accumulate", [sums], bits=bits, dtype=dtype)


def simulated_extent(sums: relax.Expr, bits: int) -> relax.Call:
    """Measures float32 sums, as `[3]` int64: the smallest, the largest, and how many do not fit two's complement of
    `bits`.
    """
    return call_of("simulated_extent", [sums], bits=bits)


def _quantize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, out_type = _float_shape(o), o.quantized("out_type")
    _storable(o, shape, out_type)
    return tensor_type(shape, "float32")


def _dequantize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, in_type = _float_shape(o), o.quantized("in_type")
    _storable(o, shape, in_type)
    return tensor_type(shape, "float32")


def _accumulate(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = _float_shape(o), str(o.attr("dtype"))
    o.require(dtype in MOST_BITS, f"cannot accumulate in {dtype}")
    o.require(1 < o.integer("bits") <= MOST_BITS[dtype], f"{dtype} cannot have {o.integer('bits')} bits")
    return tensor_type(shape, dtype)


def _extent(o: Operation) -> relax.TensorType:
    o.count(1)
    _float_shape(o)
    o.require(1 < o.integer("bits") <= max(MOST_BITS.values()), f"accumulators cannot have {o.integer('bits')} bits")
    return tensor_type((3,), "int64")


def _float_shape(o: Operation) -> tuple[int, ...]:
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"the operand must be float32, not {dtype}")
    return shape


def _storable(o: Operation, shape: tuple[int, ...], quantized: QuantizedType) -> None:
    o.require(quantized.expressed == "float32", f"real values must be float32, not {quantized.expressed}")
    o.require(quantized.dtype not in MOST_BITS, f"float32 cannot hold all integers of {quantized.dtype}")
    o.fits(shape, quantized)


RULES: dict[str, Rule] = {
    "simulated_quantize": _quantize,
    "simulated_dequantize": _dequantize,
    "simulated_accumulate": _accumulate,
    "simulated_extent": _extent,
}
