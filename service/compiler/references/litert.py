"""LiteRT."""

from __future__ import annotations

from collections.abc import Sequence

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.references import Array
from service.core.numerics import LITERT_REFERENCE


def answer(source: str, numerics: str, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What the model in `source` answers to each of `samples`."""
    kind = OpResolverType.BUILTIN_REF if numerics == LITERT_REFERENCE else OpResolverType.AUTO
    interpreter = Interpreter(source, num_threads=1, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def one(sample: Sequence[Array]) -> list[Array]:
        for detail, value in zip(inputs, sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in outputs]

    return [one(sample) for sample in samples]
