"""The model's inputs and outputs, as clients use them.

A TFLite file contains two kinds of names for inputs and outputs. Tensors have names that converters generate
    (`serving_default_keras_tensor_246:0`, `StatefulPartitionedCall:0`). Newer files also have signatures, with names
    that the model's author chose (`keras_tensor_246`, `output_0`); LiteRT's `get_signature_runner` uses these. If a
    signature names every input and output, its names are used, and `serving_default` is preferred. Otherwise, the
    tensors' names are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from service.compiler.importers.builder.module import unique_specs
from service.compiler.importers.tflite.model import Model, Signature, Tensor
from service.core.errors import Unsupported
from service.core.models.signature import DATATYPES, ModelSignature, Quantization, State, TensorSpec

_SENDABLE = set(DATATYPES.values())
_DEFAULT_KEY = "serving_default"  # TensorFlow's DEFAULT_SERVING_SIGNATURE_DEF_KEY


def signature_of(model: Model) -> ModelSignature:
    """Returns the inputs and outputs in the file's order, and the states. Names are unique among the inputs, among the
    outputs and among the states.

    Raises:
        Unsupported: an input has a type that clients cannot send.
    """
    chosen = _chosen(model)
    input_names = _named(chosen.inputs if chosen else ())
    output_names = _named(chosen.outputs if chosen else ())
    return ModelSignature(
        _specs([model.tensors[index] for index in model.inputs], input_names, "input"),
        _specs([model.tensors[index] for index in model.outputs], output_names, "output"),
        tuple(
            State(spec, np.ascontiguousarray(state.initial).tobytes())
            for spec, state in zip(_state_specs(model), model.states, strict=True)
        ),
    )


def _named(ends: Sequence[tuple[str, int]]) -> dict[int, list[str]]:
    """Returns the names of each tensor. A tensor that is several outputs has several names."""
    names: dict[int, list[str]] = {}
    for name, index in ends:
        names.setdefault(index, []).append(name)
    return names


def _state_specs(model: Model) -> tuple[TensorSpec, ...]:
    tensors = [replace(model.tensors[state.tensor], shape=state.initial.shape) for state in model.states]
    return _specs(tensors, {state.tensor: [state.name] for state in model.states}, "state")


def _chosen(model: Model) -> Signature | None:
    """Returns the signature that names every input and output and nothing else."""
    fitting = [
        signature
        for signature in model.signatures
        if sorted(index for _, index in signature.inputs) == sorted(model.inputs)
        and sorted(index for _, index in signature.outputs) == sorted(model.outputs)
    ]
    preferred = [signature for signature in fitting if signature.key == _DEFAULT_KEY]
    return next(iter(preferred or fitting), None)


def _specs(tensors: Sequence[Tensor], names: dict[int, list[str]], what: str) -> tuple[TensorSpec, ...]:
    ends = []
    for tensor in tensors:
        if tensor.dtype not in _SENDABLE:
            message = f"the {what} {tensor.label} has the type {tensor.dtype}, which requests cannot contain"
            raise Unsupported(message, tensor=tensor.label)
        given = names[tensor.index].pop(0) if names.get(tensor.index) else tensor.name
        ends.append((given or tensor.name, tensor.dtype, tensor.shape, _quantization(tensor)))
    return unique_specs(ends, what)


def _quantization(tensor: Tensor) -> Quantization | None:
    stored = tensor.quantization
    if stored is None or stored.per_axis or tensor.dtype == "float32" or stored.fault_for(tensor.dtype) is not None:
        return None
    return Quantization(stored.scales[0], stored.zero_points[0])
