"""The model's inputs and outputs as clients see them.

TorchScript says of an input only that it is a tensor. Its shape is what the user gives, or what the model was traced
with; its elements are float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from service.compiler.importers.torch.tensors import Spec
from service.compiler.importers.torch.values import Value
from service.core.errors import Unsupported
from service.core.signature import Quantization, TensorSpec, datatype_of

Shapes = Mapping[str, Sequence[int]]

_LONGEST_NAME = 256
_MOST_RANK = 8
_LARGEST = 1 << 31  # elements
_HINT = "give it: octet compile --input-shape {name}=1,3,224,224 (or save a traced model, which carries its shapes)"


def input_specs(names: Sequence[str], optional: int, shapes: Shapes, traced: Sequence[Any]) -> tuple[TensorSpec, ...]:
    """One for each parameter of `forward`, apart from those with defaults and without a given shape.

    Args:
        names: of the parameters.
        optional: how many of the last ones have defaults.
        shapes: what the user gave, by name; "" stands for the only input.
        traced: what the model was traced with.

    Raises:
        Unsupported: the shape of an input is unknown or absurd, or there is no such input.
    """
    given = dict(shapes)
    if "" in given and len(names) - optional <= 1 and names:
        given.setdefault(names[0], given.pop(""))
    unknown = [name or "(the only input)" for name in given if name not in names]
    if unknown:
        raise Unsupported(f"the model has no input {', '.join(unknown)}", hint=f"its inputs are: {', '.join(names)}")
    specs = []
    for place, name in enumerate(names):
        spec = traced[place] if place < len(traced) and isinstance(traced[place], Spec) else None
        if name in given:
            spec = Spec(spec.dtype if spec else "float32", tuple(given[name]))
        if spec is None:
            if place >= len(names) - optional:
                break
            raise Unsupported(f"the file does not say what shape the input {name} has", hint=_HINT.format(name=name))
        specs.append(spec_of(name, spec))
    if not specs:
        raise Unsupported("the model has no inputs")
    return tuple(specs)


def output_specs(results: Sequence[tuple[str | None, Value]]) -> tuple[TensorSpec, ...]:
    """One for each tensor that the model returns."""
    specs: dict[str, TensorSpec] = {}
    for place, (name, value) in enumerate(results):
        unique = _clean(name or f"output_{place}")
        while unique in specs:
            unique = f"{unique}_{place}"
        quantized = value.quantized
        quantization = None if quantized is None else Quantization(quantized.scale, quantized.zero_point)
        specs[unique] = TensorSpec(unique, datatype_of(value.dtype), value.shape, quantization)
    return tuple(specs.values())


def spec_of(name: str, spec: Spec) -> TensorSpec:
    """An input as clients see it.

    Raises:
        Unsupported: it is of another type than float32, or of an absurd shape.
    """
    if spec.dtype != "float32":
        raise Unsupported(f"the input {name} is of {spec.dtype}; a quantized model takes float32 and quantizes it")
    if len(spec.shape) > _MOST_RANK or not all(size > 0 for size in spec.shape) or math.prod(spec.shape) >= _LARGEST:
        raise Unsupported(f"the input {name} has the shape {list(spec.shape)[: _MOST_RANK + 1]}")
    return TensorSpec(_clean(name), datatype_of(spec.dtype), spec.shape)


def _clean(name: str) -> str:
    """A name that can stand in a JSON document, a log line and a terminal."""
    return "".join(char if char.isprintable() else "_" for char in name)[:_LONGEST_NAME]
