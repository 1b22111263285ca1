"""Quantizations and dequantizations in one form: an operand, and the type of the stored values.

PyTorch has `quantized_decomposed::(de)quantize_per_tensor` and `…_per_channel`
(torch/ao/quantization/fx/_decomposed.py), and torchao has `torchao::(de)quantize_affine`
(torchao/quantization/quant_primitives.py). Scales and zero points are arguments or constants. A conversion that
computes them, as in dynamic quantization, is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from service.compiler.importers.torch.exported.program import DEQUANTIZE, QUANTIZE, Call, Operand, Program
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.errors import InvalidInput, MalformedModel, Unsupported

_STORAGES = ("int8", "uint8", "int16", "int32")
# The parameters after the operand, in the order of the operators' schemas.
_PER_TENSOR = ("scale", "zero_point", "quant_min", "quant_max", "dtype")
_PER_CHANNEL = ("scales", "zero_points", "axis", "quant_min", "quant_max", "dtype")
_AFFINE = ("block_size", "scale", "zero_point", "dtype", "quant_min", "quant_max")

Given = dict[str, Any]


def typed(program: Program) -> list[Call]:
    """Returns the calls of `program`. Conversions of known types become `QUANTIZE` or `DEQUANTIZE`.

    Raises:
        MalformedModel: the arguments of a conversion do not fit together.
        Unsupported: a type violates a rule of quantized types.
    """
    return [_typed(program, call) for call in program.calls]


def _typed(program: Program, call: Call) -> Call:
    names, type_of = _KINDS.get(call.op_type.removesuffix("_"), ((), None))
    if type_of is None or not call.inputs or call.arguments[:1] != (Operand(0),) or len(call.outputs) != 1:
        return call
    given = dict(zip(names, call.arguments[1:], strict=False)) | dict(call.named)
    known = {name: _constant_argument(program, call, value) for name, value in given.items()}
    real = [known[name] for name in ("out_dtype", "output_dtype") if known.get(name) is not None]
    if known.get("dtype") not in _STORAGES or real not in ([], ["float32"]):
        return call
    try:
        quantized = type_of(known, program.shapes.get(call.inputs[0], ()))
    except InvalidInput as exc:  # PyTorch computes it nevertheless: a scale of 0 gives infinities, for example
        raise Unsupported(f"{call.label}: {exc.message}", op=call.label, tensor=call.outputs[0]) from exc
    except (ArithmeticError, LookupError, TypeError, ValueError) as exc:
        what = f"{call.label}: its arguments do not fit together"
        raise MalformedModel(what, op=call.label, tensor=call.outputs[0]) from exc
    if quantized is None:
        return call
    op_type = DEQUANTIZE if "dequantize" in call.op_type else QUANTIZE
    return Call(call.index, op_type, call.inputs[:1], call.outputs, {}, arguments=(Operand(0),), quantized=quantized)


def _constant_argument(program: Program, call: Call, value: Any) -> Any:
    """Returns an argument. For a constant tensor, returns the tensor's value. Returns a computed argument unchanged."""
    if not isinstance(value, Operand):
        return value
    tensor = program.constants.get(call.inputs[value.place])
    return value if tensor is None else tensor


def _per_tensor(given: Given, _: Sequence[int | None]) -> QuantizedType | None:
    scales, points = _numbers(given.get("scale"), float), _numbers(given.get("zero_point"), int)
    return None if scales is None or points is None else _bounded(given, scales, points, None)


def _per_channel(given: Given, shape: Sequence[int | None]) -> QuantizedType | None:
    scales, points = _numbers(given.get("scales"), float), _numbers(given.get("zero_points", 0), int)
    return None if scales is None or points is None else _bounded(given, scales, points, given["axis"] % len(shape))


def _affine(given: Given, shape: Sequence[int | None]) -> QuantizedType | None:
    """Returns the type: per tensor or per axis if the blocks divide at most one dimension, into single elements; else
    in blocks. None if the scales are computed.
    """
    scales, points = _numbers(given.get("scale"), float), _numbers(given.get("zero_point", 0), int)
    if scales is None or points is None:
        return None
    sizes = [int(block) for block in given["block_size"]]
    apart = [axis for axis, (size, block) in enumerate(zip(shape, sizes, strict=True)) if size != block]
    if len(apart) <= 1 and all(sizes[axis] == 1 for axis in apart):
        return _bounded(given, scales, points, apart[0] if apart else None)
    if any(size is None or block < 1 or size % block for size, block in zip(shape, sizes, strict=True)):
        return None
    grid = tuple(size // block for size, block in zip(shape, sizes, strict=True) if size is not None)
    blocks = tuple(enumerate(sizes))
    return _bounded(given, scales, points, None, blocks, grid)


def _bounded(
    given: Given,
    scales: list[float],
    points: list[int],
    axis: int | None,
    blocks: tuple[tuple[int, int], ...] | None = None,
    grid: tuple[int, ...] = (),
) -> QuantizedType:
    low, high = STORAGE_RANGES[given["dtype"]]
    least, most = given.get("quant_min"), given.get("quant_max")
    return QuantizedType(
        given["dtype"],
        tuple(scales),
        tuple(points),
        axis=axis if axis is not None and len(scales) > 1 else None,
        storage_min=low if least is None else int(least),
        storage_max=high if most is None else int(most),
        blocks=blocks,
        grid=grid,
    )


def _numbers(value: Any, kind: Callable[[Any], Any]) -> list[Any] | None:
    """Returns a number, or the numbers of a constant, as a list; None if they are computed."""
    if isinstance(value, Tensor):
        return [kind(each) for each in value.data.reshape(-1).tolist()] or [kind(0)]
    if value is None:  # no zero point
        return [kind(0)]
    return [kind(value)] if isinstance(value, int | float) else None


def real_values(data: np.ndarray[Any, Any], quantized: QuantizedType) -> np.ndarray[Any, Any]:
    """Returns the real values of stored constants, as float32."""
    scales, points = np.array(quantized.scales, np.float32), np.array(quantized.zero_points, np.int64)
    if quantized.blocks is None:
        shape = [-1 if axis == quantized.axis else 1 for axis in range(data.ndim)]
        scales, points = scales.reshape(shape), points.reshape(shape)
    else:
        scales, points = scales.reshape(quantized.grid), points.reshape(quantized.grid)
        for axis, size in quantized.blocks:
            scales, points = scales.repeat(size, axis), points.repeat(size, axis)
    return np.asarray((data.astype(np.int64) - points).astype(np.float32) * scales)


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[Given, Sequence[int | None]], QuantizedType | None] | None]] = {
    "quantized_decomposed::quantize_per_tensor": (_PER_TENSOR, _per_tensor),
    "quantized_decomposed::dequantize_per_tensor": (_PER_TENSOR, _per_tensor),
    "quantized_decomposed::quantize_per_channel": (_PER_CHANNEL, _per_channel),
    "quantized_decomposed::dequantize_per_channel": (_PER_CHANNEL, _per_channel),
    "torchao::quantize_affine": (_AFFINE, _affine),
    "torchao::dequantize_affine": (_AFFINE, _affine),
}
