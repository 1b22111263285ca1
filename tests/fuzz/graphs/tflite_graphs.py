"""Draws random quantized TFLite graphs with one 8-bit type, or with 16-bit activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.graphs.graph import Graph, Rng, draw
from tests.fuzz.graphs.tflite_operators import OPERATORS
from tests.fuzz.graphs.tflite_writer import TfliteWriter

_SHAPES: Sequence[Callable[[Rng], tuple[int, ...]]] = (
    lambda rng: (int(rng.integers(1, 3)), *rng.integers(3, 10, 2).tolist(), int(rng.choice([1, 2, 3, 4, 8, 16, 17]))),
    lambda rng: (int(rng.integers(1, 3)), int(rng.integers(2, 12)), int(rng.integers(1, 20))),
    lambda rng: (int(rng.integers(1, 5)), int(rng.choice([1, 3, 8, 16, 31, 64]))),
)


def random_graph(rng: Rng, most: int = 7) -> Graph:
    """Returns a graph of up to `most` operators."""
    writer = TfliteWriter(rng, str(rng.choice(["int8", "int8", "int8", "uint8", "uint8", "int16"])))
    writer.new_input(_SHAPES[int(rng.integers(len(_SHAPES)))](rng))
    draw(writer, OPERATORS, most)
    return writer.graph(_outputs(writer))


def _outputs(writer: TfliteWriter) -> tuple[str, ...]:
    """Returns the results that no operator reads, and sometimes one that an operator does read."""
    read = {name for operator in writer.operators for name in operator.inputs}
    made = [name for operator in writer.operators for name in operator.outputs]
    ends = [name for name in made if name not in read]
    if made and writer.often(0.1):
        ends.append(made[0])
    return tuple(dict.fromkeys(ends))
