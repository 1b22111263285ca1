"""The model's inputs and outputs as clients see them, under the file's own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from service.compiler.importers.names import printable, unique
from service.compiler.importers.onnx.model import End, Model, shortened
from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported
from service.core.signature import DATATYPES, ModelSignature, Quantization, TensorSpec, datatype_of

_DTYPES = {dtype.name for dtype in DATATYPES.values()}
Shape = tuple[int, ...]


def input_shape(end: End) -> Shape:
    """The shape that an input is compiled for. A first dimension without a number is a batch, and becomes 1.

    Raises:
        Unsupported: another dimension has no number, or the type is none that clients can send.
    """
    label = shortened(end.name)
    if end.dtype not in _DTYPES:
        raise Unsupported(f"the input {label} is of {end.dtype}, which cannot be sent", tensor=label)
    if end.shape is None:
        raise Unsupported(f"the file does not say which shape the input {label} has", tensor=label)
    open_ended = [axis for axis, size in enumerate(end.shape) if not isinstance(size, int)]
    if any(axis > 0 for axis in open_ended):
        shown = [size if isinstance(size, int) else size or "?" for size in end.shape]
        raise Unsupported(
            f"the input {label} has the shape {shown}: besides the batch, every dimension needs a number",
            tensor=label,
            hint="fix them when exporting, or with `python -m onnxruntime.tools.make_dynamic_shape_fixed`",
        )
    shape = tuple(size if isinstance(size, int) else 1 for size in end.shape)
    if any(size < 1 for size in shape):
        raise Unsupported(f"the input {label} has the shape {list(shape)}", tensor=label)
    return shape


def batch_is_open(model: Model) -> bool:
    """Whether the file leaves the batch open, which is then compiled as 1."""
    return any(end.shape and not isinstance(end.shape[0], int) for end in model.inputs)


def signature_of(
    model: Model,
    inputs: Iterable[tuple[Shape, str]],
    outputs: Iterable[tuple[Shape, str]],
    type_of: Callable[[str], QuantizedType | None],
) -> ModelSignature:
    """Inputs and outputs in the file's order, with the shapes and dtypes that the module has."""
    return ModelSignature(
        _specs(model.inputs, inputs, type_of, "input"), _specs(model.outputs, outputs, type_of, "output")
    )


def _specs(
    ends: Iterable[End],
    tensors: Iterable[tuple[Shape, str]],
    type_of: Callable[[str], QuantizedType | None],
    what: str,
) -> tuple[TensorSpec, ...]:
    specs: dict[str, TensorSpec] = {}
    for place, (end, (shape, dtype)) in enumerate(zip(ends, tensors, strict=True)):
        name = unique(printable(end.name) or f"{what}_{place}", specs)
        specs[name] = TensorSpec(name, datatype_of(dtype), shape, _quantization(type_of(end.name)))
    return tuple(specs.values())


def _quantization(quantized: QuantizedType | None) -> Quantization | None:
    if quantized is None or not quantized.is_per_tensor:
        return None
    return Quantization(quantized.scale, quantized.zero_point)
