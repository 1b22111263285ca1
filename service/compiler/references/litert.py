"""Runs models in LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in `source`. The model runs on one thread. Inputs are resized to the shapes of the samples."""
    kernels = {name: OpResolverType[value] for name, value in options.items()}
    interpreter = Interpreter(source, num_threads=1, **kernels)
    inputs = interpreter.get_input_details()
    is_open = any(-1 in detail["shape_signature"] for detail in inputs)
    if not is_open:  # with one element where a size is open, the kernels may refuse the model
        interpreter.allocate_tensors()
    shapes = None if is_open else [tuple(detail["shape"]) for detail in inputs]

    def answer(sample: Sequence[Array]) -> list[Array]:
        nonlocal shapes
        if (given := [value.shape for value in sample]) != shapes:
            for detail, value in zip(inputs, sample, strict=True):
                interpreter.resize_tensor_input(detail["index"], value.shape)
            interpreter.allocate_tensors()
            shapes = given
        for detail, value in zip(inputs, sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return answer
