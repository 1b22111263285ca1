"""Draws random quantized ONNX graphs: operators between conversions from and to integers, and quantized operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.graphs.graph import Graph, Rng, draw
from tests.fuzz.graphs.onnx_operators import OPERATORS
from tests.fuzz.graphs.onnx_writer import OnnxWriter

_SHAPES: Sequence[Callable[[Rng], tuple[int, ...]]] = (
    lambda rng: (int(rng.integers(1, 3)), int(rng.choice([1, 2, 3, 4, 8, 16, 17])), *rng.integers(3, 10, 2).tolist()),
    lambda rng: (int(rng.integers(1, 3)), int(rng.integers(1, 9)), int(rng.integers(3, 20))),
    lambda rng: (int(rng.integers(1, 5)), int(rng.choice([1, 3, 8, 16, 31, 64]))),
)


def random_graph(rng: Rng, most: int = 7) -> Graph:
    """Returns a graph with up to `most` operators that compute, and their conversions."""
    writer = OnnxWriter(rng)
    writer.quantized_input(_SHAPES[int(rng.integers(len(_SHAPES)))](rng))
    draw(writer, OPERATORS, most)
    return writer.graph(_outputs(writer))


def _outputs(writer: OnnxWriter) -> tuple[str, ...]:
    """Returns the results that no operator reads, and sometimes another one. They are stored or dequantized."""
    read = {name for operator in writer.operators for name in operator.inputs}
    made = {name for operator in writer.operators for name in operator.outputs}
    ends = [value for value in writer.values if value.name in made and value.name not in read]
    if writer.often(0.1):
        ends += [value for value in writer.values if value.name in made and value not in ends][:1]
    names = [writer.dequantize(value) if writer.often(0.3) else value.name for value in ends]
    names += [name for name in writer.reals if name not in read]
    return tuple(dict.fromkeys(names))
