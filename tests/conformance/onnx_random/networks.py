"""Random models of the operators that contain several quantized products: attention, embeddings and LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx_random.draws import BYTES, Draw, Drawn, strip
from tests.conformance.onnx_random.elementwise import MICROSOFT
from tests.support.onnx_operator import Constant, Operand

_SUMS = 2e-6  # float32 sums in another order than ONNX Runtime's, as a fraction of the largest value


def attention(of: Draw) -> Drawn:
    batch, tokens, heads, size = of.size(1, 2), of.size(1, 7), of.size(1, 3), of.one([1, 4, 8])
    width, hidden = of.one([4, 8, 12]), heads * size
    x_type, w_type = of.one([("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
    count = 3 * hidden if of.often(0.4) else None
    x_scale, w_scale = of.scale(high=0.03), of.scale(count, high=0.02)
    mask: Operand = None
    attributes: dict[str, Any] = {"num_heads": heads}
    past: Operand = None
    outputs = ["float32"]
    length = tokens
    if of.often(0.3):
        attributes["unidirectional"] = 1
    if of.often(0.3):
        past = of.real(2, batch, heads, of.size(1, 4), size)
        outputs, length = ["float32", "float32"], tokens + past.shape[3]
    if of.often(0.6):
        form = of.one(["count", "rows", "pairs"])
        if form == "count":
            mask = of.rng.integers(1, length, batch, endpoint=True).astype(np.int32)
        elif form == "rows":
            mask = (of.rng.random((batch, length)) < 0.7).astype(np.int32)
        else:
            mask = np.concatenate([of.rng.integers(1, length, batch, endpoint=True), np.zeros(batch, np.int64)])
            mask = mask.astype(np.int32)
    operands: list[Operand] = [
        *(of.stored(x_type, batch, tokens, width), Constant(of.stored(w_type, width, 3 * hidden))),
        *(Constant(of.real(3 * hidden)), x_scale, w_scale, mask),
        *(of.point(x_type, x_scale), of.point(w_type, w_scale), past),
    ]
    return Drawn(f"{MICROSOFT}QAttention", strip(operands), outputs, attributes, tolerance=5e-6)


def embed_layer_normalization(of: Draw) -> Drawn:
    dtype, batch, tokens, hidden = of.one(BYTES), of.size(1, 3), of.size(1, 7), of.one([4, 8, 20])
    words, places, segments = of.size(3, 30), of.size(tokens, 12), 2
    has_segments = of.often(0.7)
    tables = [of.stored(dtype, rows, hidden) for rows in (words, places, segments)] + [of.stored(dtype, hidden)] * 2
    scales = [of.scale() for _ in tables]
    points = [of.point(dtype, each, is_optional=False) for each in scales]
    ids = of.rng.integers(0, words, (batch, tokens)).astype(np.int32)
    groups = of.rng.integers(0, segments, (batch, tokens)).astype(np.int32) if has_segments else None
    mask = (of.rng.random((batch, tokens)) < 0.7).astype(np.int32) if of.often() else None
    constants: list[Operand] = [Constant(table) for table in tables]
    if not has_segments:
        constants[2] = scales[2] = points[2] = None  # type: ignore[call-overload]
    operands = strip([ids, groups, *constants, mask, *scales, *points])
    attributes = {"epsilon": float(np.float32(1e-5))} if of.often() else {}
    name = f"{MICROSOFT}QEmbedLayerNormalization"
    return Drawn(name, operands, ["float32", "int32"], attributes, tolerance=5e-6)


def dynamic_lstm(of: Draw) -> Drawn:
    dtype, steps, batch = of.one(BYTES), of.size(1, 5), of.size(1, 3)
    width, hidden = of.size(1, 9), of.size(1, 6)
    direction = of.one(["forward", "reverse", "bidirectional"])
    directions = 2 if direction == "bidirectional" else 1
    is_per_column = of.often(0.4)
    shape = (directions, 4 * hidden) if is_per_column else (directions,)
    scales = [Constant(of.rng.uniform(0.005, 0.02, shape).astype(np.float32)) for _ in range(2)]
    points = [of.stored(dtype, *shape) for _ in range(2)]
    if is_per_column or of.often():
        points = [np.zeros_like(each) for each in points]
    bias = Constant(of.real(directions, 8 * hidden)) if of.often(0.7) else None
    states = [of.real(directions, batch, hidden) if of.often(0.4) else None for _ in range(2)]
    lengths = None
    if of.often(0.3):
        lengths = Constant(of.rng.integers(1, steps, batch, endpoint=True).astype(np.int32))
    peepholes = Constant(of.real(directions, 3 * hidden)) if of.often(0.2) else None
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if of.often(0.2):
        attributes["input_forget"] = 1
    if of.often(0.2):
        attributes["clip"] = float(np.float32(of.rng.uniform(0.5, 2.0)))
    weights = [Constant(of.stored(dtype, directions, rows, 4 * hidden)) for rows in (width, hidden)]
    quantization = [each for pair in zip(scales, map(Constant, points), strict=True) for each in pair]
    operands: list[Operand] = [of.real(steps, batch, width), *weights, bias, lengths, *states, peepholes, *quantization]
    name = f"{MICROSOFT}DynamicQuantizeLSTM"
    return Drawn(name, operands, ["float32"] * 3, attributes, tolerance=2e-6)


_FUNCTIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus")
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(of: Draw) -> Drawn:
    op_type, direction = of.one(["LSTM", "GRU", "RNN"]), of.one(["forward", "reverse", "bidirectional"])
    directions, gates = 2 if direction == "bidirectional" else 1, _GATES[op_type]
    steps, batch, width, hidden = of.size(1, 5), of.size(1, 3), of.size(1, 6), of.size(1, 5)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if of.often(0.3):
        attributes["clip"] = float(np.float32(of.rng.uniform(0.3, 2.0)))
    if op_type == "LSTM" and of.often(0.3):
        attributes["input_forget"] = 1
    if op_type == "GRU" and of.often():
        attributes["linear_before_reset"] = 1
    if of.often(0.3):
        count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op_type] * directions
        attributes["activations"] = [of.one(_FUNCTIONS) for _ in range(count)]
    lengths = of.operand(of.rng.integers(1, steps, batch, endpoint=True).astype(np.int32)) if of.often() else None
    weights = [Constant(of.real(directions, gates * hidden, rows) * np.float32(0.3)) for rows in (width, hidden)]
    bias = Constant(of.real(directions, 2 * gates * hidden)) if of.often(0.7) else None
    states = [of.real(directions, batch, hidden) if of.often() else None for _ in range(2 if op_type == "LSTM" else 1)]
    operands: list[Operand] = [of.real(steps, batch, width), *weights, bias, lengths, *states]
    if op_type == "LSTM" and of.often(0.4):
        operands.append(Constant(of.real(directions, 3 * hidden)))
    outputs = ["float32"] * (1 + len(states))
    return Drawn(op_type, strip(operands), outputs, attributes, tolerance=2e-5)


NETWORKS = {
    "Recurrent": recurrent,
    "QAttention": attention,
    "QEmbedLayerNormalization": embed_layer_normalization,
    "DynamicQuantizeLSTM": dynamic_lstm,
}
