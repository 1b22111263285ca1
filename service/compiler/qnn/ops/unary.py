"""Functions of one stored value: each is a table of 256, or of 65536, whatever its formula."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, same_storage, tensor_type
from service.compiler.qnn.types import QuantizedType

# Function -> the attributes that it has beside its types.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "abs": (),
    "elu": (),
    "exp": (),
    "gelu": ("approximate",),
    "hard_sigmoid": (),
    "hard_swish": (),
    "leaky_relu": ("alpha",),
    "log": (),
    "logistic": (),
    "relu": (),  # and its like: the storage bounds of the output's type say which
    "rsqrt": (),
    "silu": (),
    "sqrt": (),
    "tanh": (),
}
_STORAGES = ("int8", "uint8", "int16")


def unary(
    function: str, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, **attrs: float | bool
) -> relax.Call:
    """A function of `FUNCTIONS` of each real value; same shape and storage, all types per-tensor."""
    return call_of(function, [x], in_type=in_type, out_type=out_type, **attrs)


def _unary(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, storage = o.stored(0, o.per_tensor("in_type")), same_storage(o)
    o.require(storage in _STORAGES, f"is a table of 8- or 16-bit values, not of {storage}")
    for name in FUNCTIONS[o.name.removeprefix("qnn.")]:
        o.attr(name)
    return tensor_type(shape, storage)


RULES: dict[str, Rule] = dict.fromkeys(FUNCTIONS, _unary)
