"""The model's inputs and outputs as clients use them, under their names in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from service.compiler.importers.builder.module import agreed_shape, quantization_of, unique_specs
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.model import End, Model
from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported
from service.core.models.signature import DATATYPES, ModelSignature, TensorSpec

_DTYPES = set(DATATYPES.values())
Shape = tuple[int, ...]


def input_shape(end: End, given: Sequence[int] | None = None) -> Shape:
    """Returns the shape for which an input is compiled. If the first dimension has no number, it is a batch and becomes
    1.

    Args:
        given: the shape that the user gave. Sizes in the file take precedence.

    Raises:
        Unsupported: another dimension has no number, or clients cannot send the type.
        InvalidInput: the given shape contradicts the file.
    """
    label = shortened(end.name)
    if not end.dtype:
        raise Unsupported(f"the file gives no type for the input {label}", tensor=label, hint="export it with types")
    check_sendable(end, "input")
    if end.shape is None and given is None:
        hint = f"give the shape: --input-shape {label}=1,…"
        raise Unsupported(f"the file gives no shape for the input {label}", tensor=label, hint=hint)
    shape = agreed_shape(label, end.shape if end.shape is not None else (None,) * len(given or ()), given)
    if any(size < 1 for size in shape):
        raise Unsupported(f"the input {label} has the empty shape {list(shape)}", tensor=label)
    return shape


def check_sendable(end: End, what: str) -> None:
    """Checks that clients can send an input, or receive an output.

    Raises:
        Unsupported: clients cannot send or receive values of this type.
    """
    if end.dtype not in _DTYPES:
        label = shortened(end.name)
        raise Unsupported(f"the {what} {label} has the type {end.dtype}, which cannot be sent", tensor=label)


def signature_of(
    model: Model,
    inputs: Iterable[tuple[Shape, str]],
    outputs: Iterable[tuple[Shape, str]],
    type_of: Callable[[str], QuantizedType | None],
) -> ModelSignature:
    """Returns inputs and outputs in the file's order. The shapes and dtypes are those of the module."""
    return ModelSignature(
        _specs(model.inputs, inputs, type_of, "input"), _specs(model.outputs, outputs, type_of, "output")
    )


def _specs(
    ends: Iterable[End],
    tensors: Iterable[tuple[Shape, str]],
    type_of: Callable[[str], QuantizedType | None],
    what: str,
) -> tuple[TensorSpec, ...]:
    return unique_specs(
        (
            (end.name, dtype, shape, quantization_of(type_of(end.name)))
            for end, (shape, dtype) in zip(ends, tensors, strict=True)
        ),
        what,
    )
