"""The model's inputs and outputs, as clients use them.

In TorchScript, the type of an input is only `Tensor`. Its shape is given by the user, or by the trace. Its elements are
float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from service.compiler.importers.builder.module import Shapes, quantization_of, unique_specs
from service.compiler.importers.names import printable
from service.compiler.importers.torch.tensors import Spec
from service.compiler.importers.torch.values import Value
from service.core.errors import Unsupported
from service.core.models.signature import TensorSpec, datatype_of

_MOST_RANK = 8
INPUT_TYPES = ("float32", "int64", "int32", "uint8", "int8", "bool")
_LARGEST = 1 << 31  # limit of a tensor's number of elements
_HINT = "specify it: octet compile --input-shape {name}=1,3,224,224 (or save a traced model, which carries its shapes)"


def input_specs(names: Sequence[str], optional: int, shapes: Shapes, traced: Sequence[Any]) -> tuple[TensorSpec, ...]:
    """Returns a specification for each parameter of `forward`. Parameters that have a default and no given shape are
    omitted.

    Args:
        names: the parameters' names.
        optional: how many parameters at the end have defaults.
        shapes: the shapes that the user gave, by name; "" means the only input.
        traced: the inputs that the model was traced with.

    Raises:
        Unsupported: the shape of an input is unknown or invalid, or an input does not exist.
    """
    given = dict(shapes)
    if "" in given and len(names) - optional <= 1 and names:
        given.setdefault(names[0], given.pop(""))
    unknown = [name or "(the only input)" for name in given if name not in names]
    if unknown:
        raise Unsupported(f"the model has no input {', '.join(unknown)}", hint=f"its inputs are: {', '.join(names)}")
    specs = []
    for index, name in enumerate(names):
        spec = traced[index] if index < len(traced) and isinstance(traced[index], Spec) else None
        if name in given:
            spec = Spec(spec.dtype if spec else "float32", tuple(given[name]))
        if spec is None:
            if index >= len(names) - optional:
                break
            raise Unsupported(f"the file does not contain the shape of the input {name}", hint=_HINT.format(name=name))
        specs.append(spec_of(name, spec))
    if not specs:
        raise Unsupported("the model has no inputs")
    return tuple(specs)


def output_specs(results: Sequence[tuple[str | None, Value]]) -> tuple[TensorSpec, ...]:
    """Returns a specification for each tensor that the model returns."""
    ends = ((name or "", value.dtype, value.shape, quantization_of(value.quantized)) for name, value in results)
    return unique_specs(ends, "output")


def spec_of(name: str, spec: Spec) -> TensorSpec:
    """Returns the specification of an input for clients.

    Raises:
        Unsupported: the input has a type that is not in `INPUT_TYPES`, or its shape is invalid.
    """
    if spec.dtype not in INPUT_TYPES:
        raise Unsupported(
            f"the input {name} is {spec.dtype}, but only {', '.join(INPUT_TYPES)} can be compiled",
            hint="convert it inside the model: x.float()",
        )
    if len(spec.shape) > _MOST_RANK or not all(size > 0 for size in spec.shape) or math.prod(spec.shape) >= _LARGEST:
        raise Unsupported(f"the input {name} has the unsupported shape {list(spec.shape)[: _MOST_RANK + 1]}")
    return TensorSpec(printable(name), datatype_of(spec.dtype), spec.shape)
