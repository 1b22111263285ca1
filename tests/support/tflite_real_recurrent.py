"""TFLite models of one recurrent layer of real values, with weights of float32 or int8, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.tflite_builder import ModelBuilder, Quant

ROWS, STEPS, WIDTH, CELLS, PROJECTED = 2, 3, 4, 5, 3
TANH, RELU, NONE = 4, 1, 0
OMITTED = -1


class _Layer:
    """Adds the inputs of a layer, in order."""

    def __init__(self, *, stored: bool) -> None:
        """`stored` is true for int8 weights."""
        self.builder, self.inputs, self.stored = ModelBuilder(), list[int](), stored
        self._rng = np.random.default_rng(len(self.inputs))

    def add(self, index: int) -> int:
        self.inputs.append(index)
        return index

    def omit(self, count: int) -> None:
        self.inputs += [OMITTED] * count

    def weights(self, *shape: int) -> None:
        values = self._rng.normal(0, 0.4, shape).astype(np.float32)
        scale = float(np.abs(values).max() / 127)
        name = f"w{len(self.inputs)}"
        if self.stored:
            self.add(self.builder.constant(name, np.round(values / scale).astype(np.int8), Quant(scale)))
        else:
            self.add(self.builder.constant(name, values))

    def vector(self, size: int, mean: float = 0.0) -> None:
        values = self._rng.normal(mean, 0.3, size).astype(np.float32)
        self.add(self.builder.constant(f"v{len(self.inputs)}", values))

    def variable(self, *shape: int) -> None:
        self.add(self.builder.variable(f"s{len(self.inputs)}", shape, np.float32))

    def build(
        self, name: str, given: list[int], shapes: Sequence[Sequence[int]], options: Any, version: int = 1
    ) -> bytes:
        outputs = [self.builder.tensor(f"y{index}", shape, np.float32) for index, shape in enumerate(shapes)]
        self.builder.operator(name, self.inputs, outputs, options, version)
        return self.builder.build(given, outputs)


def _shape(rows: int, *, time_major: bool) -> tuple[int, int, int]:
    return (STEPS, rows, WIDTH) if time_major else (rows, STEPS, WIDTH)


def lstm(
    *,
    stored: bool = False,
    time_major: bool = False,
    coupled: bool = False,
    peepholes: bool = False,
    projection: bool = False,
    norms: bool = False,
    activation: int = TANH,
    clips: tuple[float, float] = (0.0, 0.0),
    asymmetric: bool = False,
    single: bool = False,
) -> bytes:
    """Returns UNIDIRECTIONAL_SEQUENCE_LSTM, or LSTM if `single` is true. `coupled` omits the input gate."""
    layer, size = _Layer(stored=stored), PROJECTED if projection else CELLS
    shape = (ROWS, WIDTH) if single else _shape(ROWS, time_major=time_major)
    x = layer.add(layer.builder.tensor("x", shape, np.float32))
    gates = [index > 0 or not coupled for index in range(4)]
    for width in (WIDTH, size):
        for present in gates:
            layer.weights(CELLS, width) if present else layer.omit(1)
    for present in (gates[0], True, True):
        layer.weights(CELLS) if peepholes and present else layer.omit(1)
    for present in gates:
        layer.vector(CELLS) if present else layer.omit(1)
    if projection:
        layer.weights(size, CELLS)
        layer.vector(size)
    else:
        layer.omit(2)
    layer.variable(ROWS, size)
    layer.variable(ROWS, CELLS)
    for present in gates if norms else ():
        layer.vector(CELLS, 1.0) if present else layer.omit(1)
    options: dict[str, Any] = {
        "fusedActivationFunction": activation,
        "cellClip": clips[0],
        "projClip": clips[1],
        "asymmetricQuantizeInputs": asymmetric,
    }
    if single:
        return layer.build("LSTM", [x], [(ROWS, size)], schema.LSTMOptionsT(**options))
    made = schema.UnidirectionalSequenceLSTMOptionsT(timeMajor=time_major, **options)
    return layer.build("UNIDIRECTIONAL_SEQUENCE_LSTM", [x], [(*shape[:2], size)], made)


def basic_lstm() -> bytes:
    """Returns LSTM with the basic kernel, whose states are inputs."""
    layer = _Layer(stored=False)
    x = layer.add(layer.builder.tensor("x", (ROWS, WIDTH), np.float32))
    hidden = layer.add(layer.builder.tensor("hidden", (ROWS, CELLS), np.float32))
    layer.weights(4 * CELLS, WIDTH + CELLS)
    layer.vector(4 * CELLS)
    cell = layer.add(layer.builder.tensor("cell", (ROWS, CELLS), np.float32))
    shapes = [(ROWS, CELLS), (ROWS, CELLS), (ROWS, WIDTH + CELLS), (ROWS, 4 * CELLS)]
    options = schema.LSTMOptionsT(fusedActivationFunction=TANH, kernelType=1)
    layer.build("LSTM", [x, hidden, cell], shapes, options, 2)
    outputs = layer.builder.graph.outputs[:2]  # the others are intermediate values
    return layer.builder.build([x, hidden, cell], [int(each) for each in outputs])


def bidirectional_lstm(
    *, stored: bool = False, merge: bool = False, time_major: bool = False, auxiliary: bool = False, rows: int = ROWS
) -> bytes:
    layer, shape = _Layer(stored=stored), _shape(rows, time_major=time_major)
    given = [layer.add(layer.builder.tensor("x", shape, np.float32))]
    for _ in range(2):
        for width in (WIDTH, CELLS):
            for _ in range(4):
                layer.weights(CELLS, width)
        layer.omit(3)
        for _ in range(4):
            layer.vector(CELLS)
        layer.omit(2)
    for _ in range(4):
        layer.variable(rows, CELLS)
    if auxiliary:
        given.append(layer.add(layer.builder.tensor("auxiliary", shape, np.float32)))
    layer.omit(8 if auxiliary else 9)
    shapes = [(*shape[:2], 2 * CELLS)] if merge else [(*shape[:2], CELLS)] * 2
    options = schema.BidirectionalSequenceLSTMOptionsT(
        fusedActivationFunction=TANH, mergeOutputs=merge, timeMajor=time_major
    )
    return layer.build("BIDIRECTIONAL_SEQUENCE_LSTM", given, shapes, options)


def rnn(
    name: str,
    *,
    stored: bool = False,
    time_major: bool = False,
    activation: int = TANH,
    merge: bool = False,
    rows: int = ROWS,
) -> bytes:
    layer, both = _Layer(stored=stored), name.startswith("BI")
    shape = (rows, WIDTH) if name == "RNN" else _shape(rows, time_major=time_major)
    x = layer.add(layer.builder.tensor("x", shape, np.float32))
    for _ in range(2 if both else 1):
        layer.weights(CELLS, WIDTH)
        layer.weights(CELLS, CELLS)
        layer.vector(CELLS)
        layer.variable(rows, CELLS)
    layer.omit(3 if both else 0)
    shapes = [(*shape[:-1], CELLS * (2 if merge else 1))] * (2 if both and not merge else 1)
    options: dict[str, Any] = {"fusedActivationFunction": activation}
    if name == "RNN":
        return layer.build(name, [x], shapes, schema.RNNOptionsT(**options))
    if both:
        made = schema.BidirectionalSequenceRNNOptionsT(timeMajor=time_major, mergeOutputs=merge, **options)
        return layer.build(name, [x], shapes, made)
    return layer.build(name, [x], shapes, schema.SequenceRNNOptionsT(timeMajor=time_major, **options))


def svdf(*, stored: bool = False, rank: int = 2, bias: bool = True, activation: int = RELU, memory: int = 4) -> bytes:
    layer, filters = _Layer(stored=stored), CELLS * rank
    x = layer.add(layer.builder.tensor("x", (ROWS, WIDTH), np.float32))
    layer.weights(filters, WIDTH)
    layer.weights(filters, memory)
    layer.vector(CELLS) if bias else layer.omit(1)
    layer.variable(ROWS, filters * memory)
    options = schema.SVDFOptionsT(rank=rank, fusedActivationFunction=activation)
    return layer.build("SVDF", [x], [(ROWS, CELLS)], options)


_WHOLE: dict[str, Any] = {"peepholes": True, "projection": True, "norms": True}
_VARIANTS: dict[str, Callable[..., bytes]] = {
    "lstm": lstm,
    "lstm, time-major": partial(lstm, time_major=True),
    "lstm, coupled": partial(lstm, coupled=True),
    "lstm, peepholes": partial(lstm, peepholes=True),
    "lstm, projection": partial(lstm, projection=True),
    "lstm, layer normalization": partial(lstm, norms=True),
    "lstm, everything": partial(lstm, clips=(0.5, 0.4), **_WHOLE),
    "lstm, everything, coupled": partial(lstm, coupled=True, **_WHOLE),
    "lstm, relu": partial(lstm, activation=RELU),
    "lstm, asymmetric": partial(lstm, asymmetric=True),
    "lstm, single step": partial(lstm, single=True, peepholes=True),
    "bidirectional lstm": bidirectional_lstm,
    "bidirectional lstm, merged": partial(bidirectional_lstm, merge=True, rows=1),
    "bidirectional lstm, merged, time-major": partial(bidirectional_lstm, merge=True, time_major=True),
    "bidirectional lstm, auxiliary": partial(bidirectional_lstm, auxiliary=True),
    "rnn": partial(rnn, "RNN"),
    "sequence rnn": partial(rnn, "UNIDIRECTIONAL_SEQUENCE_RNN"),
    "sequence rnn, time-major": partial(rnn, "UNIDIRECTIONAL_SEQUENCE_RNN", time_major=True, activation=RELU),
    "bidirectional rnn": partial(rnn, "BIDIRECTIONAL_SEQUENCE_RNN"),
    "bidirectional rnn, merged": partial(rnn, "BIDIRECTIONAL_SEQUENCE_RNN", merge=True, rows=1),
    "svdf": svdf,
    "svdf of rank 1": partial(svdf, rank=1, bias=False, activation=NONE),
    "svdf without memory": partial(svdf, memory=1),
}
MODELS: dict[str, Callable[[], bytes]] = {
    **{f"{name}, float32": partial(make, stored=False) for name, make in _VARIANTS.items()},
    **{f"{name}, int8": partial(make, stored=True) for name, make in _VARIANTS.items()},
    "bidirectional rnn, time-major": partial(rnn, "BIDIRECTIONAL_SEQUENCE_RNN", time_major=True),
    "basic lstm": basic_lstm,
}
