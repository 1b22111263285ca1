"""Runs models in LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in `source`. The model runs on one thread."""
    kernels = {name: OpResolverType[value] for name, value in options.items()}
    interpreter = Interpreter(source, num_threads=1, **kernels)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def answer(sample: Sequence[Array]) -> list[Array]:
        for detail, value in zip(inputs, sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in outputs]

    return answer
