"""The parts of one step of recurrent operators: LSTM and SVDF.

`dense` computes a gate's sums: one of the input, and one of the hidden state. `rescale` converts these sums to 16-bit
numbers and adds them. `lstm_cell` and `lstm_output` compute the rest of a step.
"""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType

GATE_SCALE = 2.0**-12  # Q3.12, the arguments of the functions of the gates


def rescale(
    accumulated: relax.Expr, addend: relax.Expr | None, in_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Converts int32 accumulators `[…, O]`, per tensor or along the last axis, to stored values, and adds `addend` to
    each.

    `addend` is stored like the result. Sums that do not fit saturate.
    """
    args = [accumulated] if addend is None else [accumulated, addend]
    return call_of("rescale", args, in_type=in_type, out_type=out_type)


def lstm_cell(gates: relax.Expr, cell: relax.Expr, cell_type: QuantizedType, *, clip: int = 0) -> relax.Call:
    """Returns the next cell state, logistic(forget) * cell + logistic(input) * tanh(candidate).

    `gates` is `[N, 4 * C]` int16 of `GATE_SCALE`: the arguments of the functions of the input, forget, candidate and
    output gates, one after the other. `cell` and the result are `[N, C]` int16, whose scale is a power of two. Without
    an input gate, `gates` is `[N, 3 * C]`, and logistic(input) is 1 - logistic(forget).

    Args:
        clip: the stored value that bounds the result on both sides; 0 for no bound.
    """
    return call_of("lstm_cell", [gates, cell], cell_type=cell_type, clip=clip)


def lstm_output(gates: relax.Expr, cell: relax.Expr, cell_type: QuantizedType, out_type: QuantizedType) -> relax.Call:
    """Returns the step's output, logistic(output) * tanh(cell), as `[N, C]` int8. The operands are as for
    `lstm_cell`.
    """
    return call_of("lstm_output", [gates, cell], cell_type=cell_type, out_type=out_type)


def time_dense(
    past: relax.Expr, weight: relax.Expr, bias: relax.Expr, in_type: QuantizedType, weight_type: QuantizedType
) -> relax.Call:
    """Multiplies each filter's past, `[N, F, M]` int16, by its weights, `[F, M]` int16, and adds up the filters of each
    unit (an SVDF).

    The length of the bias, `[U]` int32, gives the number of units. The result is accumulators `[N, U]` int32, which
    wrap.
    """
    return call_of("time_dense", [past, weight, bias], in_type=in_type, weight_type=weight_type)


def _rescale(o: Operation) -> relax.TensorType:
    in_type, out_type = o.quantized("in_type"), o.per_tensor("out_type")
    shape, dtype = o.tensor(0)
    o.require(dtype == in_type.dtype == "int32", f"accumulators must be int32, not {dtype}")
    o.fits(shape, in_type)
    o.require(
        in_type.axis in (None, len(shape) - 1), f"scales are along axis {in_type.axis} of {list(shape)}, not the last"
    )
    o.require(out_type.dtype in ("int8", "int16"), f"cannot store the result as {out_type.dtype}")
    if o.count(1, 2) == 2:
        o.require(o.tensor(1) == (shape, out_type.dtype), f"addend {o.tensor(1)} is not {list(shape)} {out_type.dtype}")
    return tensor_type(shape, out_type.dtype)


def _step(o: Operation) -> tuple[int, ...]:
    """Checks the operands of a step; returns the cell state's shape."""
    o.count(2)
    cell_type = o.per_tensor("cell_type")
    cell = o.stored(1, cell_type, rank=2)
    gates, dtype = o.tensor(0, rank=2)
    fits = dtype == "int16" and gates[0] == cell[0] and gates[1] in (3 * cell[1], 4 * cell[1])
    o.require(fits, f"gates {dtype} {list(gates)} do not fit cells {list(cell)}")
    bits = integer_bits(cell_type)
    o.require(cell_type.dtype == "int16" and bits is not None, f"cell_type must be Q0.15 to Q6.9, not {cell_type}")
    return cell


def integer_bits(cell_type: QuantizedType) -> int | None:
    """Returns the number of bits before the binary point for the type's scale, or None if tanh is not defined for
    it.
    """
    return next((bits for bits in range(7) if cell_type.scale == 2.0 ** (bits - 15)), None)


def _lstm_cell(o: Operation) -> relax.TensorType:
    shape = _step(o)
    o.require(0 <= o.integer("clip") < 1 << 15, f"clip {o.integer('clip')} is not in 0..32767")
    return tensor_type(shape, "int16")


def _lstm_output(o: Operation) -> relax.TensorType:
    shape, out_type = _step(o), o.per_tensor("out_type")
    o.require(out_type.dtype == "int8", f"out_type must be int8, not {out_type.dtype}")
    return tensor_type(shape, "int8")


def _time_dense(o: Operation) -> relax.TensorType:
    o.count(3)
    batch, filters, memory = o.stored(0, o.per_tensor("in_type"), rank=3)
    weight = o.stored(1, o.per_tensor("weight_type"), rank=2)
    (units,), dtype = o.tensor(2, rank=1)
    o.require(weight == (filters, memory), f"weights {weight} do not fit {filters} filters of {memory}")
    o.require(
        dtype == "int32" and filters % units == 0, f"{filters} filters do not form {units} units with a bias of {dtype}"
    )
    return tensor_type((batch, units), "int32")


RULES: dict[str, Rule] = {
    "lstm_cell": _lstm_cell,
    "lstm_output": _lstm_output,
    "rescale": _rescale,
    "time_dense": _time_dense,
}
