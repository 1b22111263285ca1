"""Functions of one stored value. Each can be computed by a table of 256 or 65,536 values, whatever its formula."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, same_storage, tensor_type
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType

# Function -> its attributes besides its types.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "abs": (),
    # clamps to the bounds of a fused activation, which are rounded in two ways
    "clip": ("low", "high", "even_low", "even_high"),
    "elu": (),
    "exp": (),
    "gelu": ("approximate",),
    "hard_sigmoid": (),
    "hard_swish": (),
    "leaky_relu": ("alpha",),
    "log": (),
    "logistic": (),
    "relu": (),  # also ReLU6 and similar; the bounds are the storage bounds of the output's type
    "rsqrt": (),
    "silu": (),
    "square": (),
    "sqrt": (),
    "tanh": (),
}
_STORAGES = ("int8", "uint8", "int16")


def unary(
    function: str, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, **attrs: float | bool
) -> relax.Call:
    """Applies a function of `FUNCTIONS` to each real value; same shape and storage, all types per-tensor."""
    return call_of(function, [x], in_type=in_type, out_type=out_type, **attrs)


def table(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, values: Sequence[int]) -> relax.Call:
    """Looks up `values[x - smallest]`, from stored 8-bit values to stored 8-bit values; `values` has 256 elements."""
    return call_of("table", [x], in_type=in_type, out_type=out_type, values=[int(value) for value in values])


def _table(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, out_type = o.stored(0, o.per_tensor("in_type")), o.per_tensor("out_type")
    storages = {o.per_tensor("in_type").dtype, out_type.dtype}
    o.require(storages <= {"int8", "uint8"}, f"types must be 8-bit, not {' and '.join(sorted(storages))}")
    low, high = STORAGE_RANGES[out_type.dtype]
    values = [int(value) for value in o.attr("values")]
    o.require(len(values) == 256, f"values must have 256 elements, not {len(values)}")
    o.require(low <= min(values) and max(values) <= high, f"values are outside the range of {out_type.dtype}")
    return tensor_type(shape, out_type.dtype)


def _unary(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, storage = o.stored(0, o.per_tensor("in_type")), same_storage(o)
    o.require(storage in _STORAGES, f"storage must be 8 or 16 bits wide, not {storage}")
    for name in FUNCTIONS[o.name.removeprefix("qnn.")]:
        o.attr(name)
    return tensor_type(shape, storage)


RULES: dict[str, Rule] = {"table": _table, **dict.fromkeys(FUNCTIONS, _unary)}
