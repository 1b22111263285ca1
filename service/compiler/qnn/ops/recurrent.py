"""The parts of operators whose calls follow each other: LSTM and SVDF.

A gate's sums are those of `dense`: of the input, and of the hidden state. `rescale` makes 16-bit numbers of them, one
on top of the other; `lstm_cell` and `lstm_output` do the rest of a step.
"""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType

GATE_SCALE = 2.0**-12  # of what the functions of the gates are computed of: Q3.12


def rescale(
    accumulated: relax.Expr, addend: relax.Expr | None, in_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Accumulators `[…, O]` int32, per tensor or per last axis, -> stored values, each added to that of `addend`.

    `addend` is stored as the result is, and what does not fit saturates.
    """
    args = [accumulated] if addend is None else [accumulated, addend]
    return call_of("rescale", args, in_type=in_type, out_type=out_type)


def lstm_cell(gates: relax.Expr, cell: relax.Expr, cell_type: QuantizedType, *, clip: int = 0) -> relax.Call:
    """The next cell state: logistic(forget) * cell + logistic(input) * tanh(candidate).

    `[N, 4 * C]` int16 of `GATE_SCALE`: input, forget, candidate and output gate side by side, not yet functions; and
    `[N, C]` int16, whose scale is a power of two -> `[N, C]` int16. Without an input gate (`[N, 3 * C]`), it is what
    the forget gate lacks to one.

    Args:
        clip: the stored value that bounds the result on both sides; 0 for none.
    """
    return call_of("lstm_cell", [gates, cell], cell_type=cell_type, clip=clip)


def lstm_output(gates: relax.Expr, cell: relax.Expr, cell_type: QuantizedType, out_type: QuantizedType) -> relax.Call:
    """The step's output, logistic(output) * tanh(cell): operands as of `lstm_cell` -> `[N, C]` int8."""
    return call_of("lstm_output", [gates, cell], cell_type=cell_type, out_type=out_type)


def time_dense(
    past: relax.Expr, weight: relax.Expr, bias: relax.Expr, in_type: QuantizedType, weight_type: QuantizedType
) -> relax.Call:
    """Each filter's weighted past, `[N, F, M]` int16 by `[F, M]` int16; the filters of a unit add up (an SVDF).

    The bias, `[U]` int32, says how many units there are. -> accumulators `[N, U]` int32, which wrap.
    """
    return call_of("time_dense", [past, weight, bias], in_type=in_type, weight_type=weight_type)


def _rescale(o: Operation) -> relax.TensorType:
    in_type, out_type = o.quantized("in_type"), o.per_tensor("out_type")
    shape, dtype = o.tensor(0)
    o.require(dtype == in_type.dtype == "int32", f"rescales int32, not {dtype}")
    o.fits(shape, in_type)
    o.require(in_type.axis in (None, len(shape) - 1), f"has scales along axis {in_type.axis} of {list(shape)}")
    o.require(out_type.storage in ("int8", "int16"), f"writes {out_type.storage}")
    if o.count(1, 2) == 2:
        o.require(o.tensor(1) == (shape, out_type.dtype), f"adds {o.tensor(1)} to {list(shape)} {out_type.dtype}")
    return tensor_type(shape, out_type.dtype)


def _step(o: Operation) -> tuple[int, ...]:
    """Checks the operands of a step; the cell state's shape."""
    o.count(2)
    cell_type = o.per_tensor("cell_type")
    cell = o.stored(1, cell_type, rank=2)
    gates, dtype = o.tensor(0, rank=2)
    fits = dtype == "int16" and gates[0] == cell[0] and gates[1] in (3 * cell[1], 4 * cell[1])
    o.require(fits, f"has gates of {dtype} {list(gates)} for cells of {list(cell)}")
    bits = integer_bits(cell_type)
    o.require(cell_type.storage == "int16" and bits is not None, f"has cells of {cell_type}, no Q0.15 to Q6.9")
    return cell


def integer_bits(cell_type: QuantizedType) -> int | None:
    """The number of bits before the binary point that a scale leaves, if tanh is defined for it; None otherwise."""
    return next((bits for bits in range(7) if cell_type.scale == 2.0 ** (bits - 15)), None)


def _lstm_cell(o: Operation) -> relax.TensorType:
    shape = _step(o)
    o.require(0 <= o.integer("clip") < 1 << 15, f"has the bound {o.integer('clip')}")
    return tensor_type(shape, "int16")


def _lstm_output(o: Operation) -> relax.TensorType:
    shape, out_type = _step(o), o.per_tensor("out_type")
    o.require(out_type.storage == "int8", f"writes {out_type.storage}")
    return tensor_type(shape, "int8")


def _time_dense(o: Operation) -> relax.TensorType:
    o.count(3)
    batch, filters, memory = o.stored(0, o.per_tensor("in_type"), rank=3)
    weight = o.stored(1, o.per_tensor("weight_type"), rank=2)
    (units,), dtype = o.tensor(2, rank=1)
    o.require(weight == (filters, memory), f"has weights of {weight} for {filters} filters of {memory}")
    o.require(dtype == "int32" and filters % units == 0, f"makes {units} units of {filters} filters")
    return tensor_type((batch, units), "int32")


RULES: dict[str, Rule] = {
    "lstm_cell": _lstm_cell,
    "lstm_output": _lstm_output,
    "rescale": _rescale,
    "time_dense": _time_dense,
}
