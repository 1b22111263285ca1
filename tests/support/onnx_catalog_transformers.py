"""ONNX models of one operator of a transformer each: attention, its caches, embeddings and normalization.

As in `onnx_catalog_real`, a seeded generator makes all choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Rng, Write, pick
from tests.support.onnx_catalog_qdq import normal_constant, quantized_input

BATCH, TOKENS, HEADS, SIZE = 2, 5, 2, 4
WIDTH = HEADS * SIZE


def contributed(op_type: str, *rows: Sequence[int], **attributes: Any) -> Write:
    """Returns a function that writes a contributed operator on one real tensor of tokens, and constants of the shapes
    `rows`.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = quantized_input(model, rng, (BATCH, TOKENS, WIDTH))
        constants = [
            normal_constant(model, rng, *shape) for shape in rows[: int(rng.integers(len(rows) - 1, len(rows) + 1))]
        ]
        model.output(model.microsoft(op_type, [x, *constants], **attributes), "float32")

    return write


def skip_layer_normalization(model: OnnxBuilder, rng: Rng) -> None:
    shape = (BATCH, TOKENS, WIDTH)
    x, skip = quantized_input(model, rng, shape), quantized_input(model, rng, shape, "skip")
    rows = [normal_constant(model, rng, WIDTH) for _ in range(3)]
    result = model.node(
        "SkipLayerNormalization", [x, skip, *rows], ["y", "", "", "sum"], domain="com.microsoft", epsilon=1e-5
    )
    model.output(result, "float32")
    model.output("sum", "float32")


def _masked(model: OnnxBuilder, rng: Rng) -> str:
    """Adds nothing, a mask of keys, or the number of keys."""
    kind = int(rng.integers(0, 3))
    if kind == 0:
        return ""
    if kind == 1:
        return model.constant(np.sort(rng.integers(0, 2, (BATCH, TOKENS)))[:, ::-1], "int32")
    return model.constant(rng.integers(1, TOKENS + 1, BATCH), "int32")


def attention(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (BATCH, TOKENS, WIDTH))
    rows = [normal_constant(model, rng, WIDTH, 3 * WIDTH), normal_constant(model, rng, 3 * WIDTH), _masked(model, rng)]
    model.output(model.microsoft("Attention", [x, *rows], num_heads=HEADS), "float32")


def causal_attention(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (BATCH, TOKENS, WIDTH))
    rows = [normal_constant(model, rng, WIDTH, 3 * WIDTH), normal_constant(model, rng, 3 * WIDTH)]
    model.output(model.microsoft("Attention", [x, *rows], num_heads=HEADS, unidirectional=1), "float32")


def quantized_attention(model: OnnxBuilder, rng: Rng) -> None:
    x = model.input("x", "float32", (BATCH, TOKENS, WIDTH))
    stored, step, point = model.name(), model.name(), model.name()
    model.node("DynamicQuantizeLinear", [x], [stored, step, point])
    weights = model.constant(rng.integers(-128, 128, (WIDTH, 3 * WIDTH)), "int8")
    bias, scale = normal_constant(model, rng, 3 * WIDTH), model.constant(0.01, "float32")
    rest = [weights, bias, step, scale, _masked(model, rng), point, model.constant(0, "int8")]
    model.output(model.microsoft("QAttention", [stored, *rest], num_heads=HEADS), "float32")


def attention_with_past(model: OnnxBuilder, rng: Rng) -> None:
    x, past = (
        quantized_input(model, rng, (BATCH, TOKENS, WIDTH)),
        quantized_input(model, rng, (2, BATCH, HEADS, 3, SIZE), "past"),
    )
    mask = model.constant(rng.integers(0, 2, (BATCH, TOKENS + 3)) | (np.arange(TOKENS + 3) < 2), "int32")
    rows = [
        normal_constant(model, rng, WIDTH, 3 * WIDTH),
        normal_constant(model, rng, 3 * WIDTH),
        pick(rng, "", mask),
        past,
    ]
    attributes = {"num_heads": HEADS, "unidirectional": 1}
    model.node("Attention", [x, *rows], ["y", "present"], domain="com.microsoft", **attributes)
    model.output("y", "float32")
    model.output("present", "float32")


def attention_between_bounds(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (BATCH, TOKENS, WIDTH))
    bounds = model.constant([*rng.integers(3, TOKENS + 1, BATCH), *rng.integers(0, 3, BATCH)], "int32")
    rows = [normal_constant(model, rng, WIDTH, 3 * WIDTH), normal_constant(model, rng, 3 * WIDTH), bounds]
    model.output(model.microsoft("Attention", [x, *rows], num_heads=HEADS), "float32")


def multi_head_attention_with_past(model: OnnxBuilder, rng: Rng) -> None:
    names = [quantized_input(model, rng, (BATCH, TOKENS, WIDTH), name) for name in "qkv"]
    past = [quantized_input(model, rng, (BATCH, HEADS, 3, SIZE), name) for name in ("past_key", "past_value")]
    inputs, outputs = [*names, "", "", "", *past], ["y", "present_key", "present_value"]
    attributes = {"num_heads": HEADS, "unidirectional": int(rng.integers(0, 2))}
    model.node("MultiHeadAttention", inputs, outputs, domain="com.microsoft", **attributes)
    for name in outputs:
        model.output(name, "float32")


def standard_attention_with_past(model: OnnxBuilder, rng: Rng) -> None:
    names = [
        quantized_input(model, rng, (BATCH, heads, TOKENS, SIZE), name)
        for heads, name in ((4, "q"), (2, "k"), (2, "v"))
    ]
    past = [quantized_input(model, rng, (BATCH, 2, 3, SIZE), name) for name in ("past_key", "past_value")]
    outputs = ["y", "present_key", "present_value"]
    attributes = {"is_causal": int(rng.integers(0, 2)), "softcap": pick(rng, 0.0, 2.5)}
    model.node("Attention", [*names, "", *past], outputs, **attributes)
    for name in outputs:
        model.output(name, "float32")


def rotary_embedding(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, pick(rng, (BATCH, TOKENS, WIDTH), (BATCH, HEADS, TOKENS, SIZE)))
    positions = model.constant(pick(rng, [3], rng.integers(0, 9, (BATCH, TOKENS))), "int64")
    angles = [normal_constant(model, rng, 9, SIZE // 2) for _ in range(2)]
    interleaved = int(rng.integers(0, 2))
    model.output(model.microsoft("RotaryEmbedding", [x, positions, *angles], interleaved=interleaved), "float32")


def group_query_attention(past: int, *, computed: bool = False) -> Write:
    """Returns a function that writes a first call, or a call in which each sample has up to `past` earlier tokens."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        groups, batch, size = 1, BATCH if computed else 1, 16
        tokens = TOKENS if not past else 2 if not computed else 1
        total = past + tokens
        if rng.integers(0, 2):
            names = [quantized_input(model, rng, (batch, tokens, (HEADS + 2 * groups) * size), "qkv"), "", ""]
        else:
            widths = zip("qkv", (HEADS, groups, groups), strict=True)
            names = [quantized_input(model, rng, (batch, tokens, count * size), name) for name, count in widths]
        kept = [quantized_input(model, rng, (batch, groups, past, size), name) if past else "" for name in ("pk", "pv")]
        lasts = model.constant(np.full(batch, total - 1), "int32")
        if computed:
            sent = model.node("Mod", [model.input("lasts", "int32", (batch,)), model.constant(past, "int32")])
            lasts = model.node("Add", [sent, model.constant(tokens, "int32")])
        angles = [normal_constant(model, rng, 16, size // 2) for _ in range(2)]
        attributes: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": groups, "do_rotary": int(rng.integers(0, 2))}
        attributes |= {"softcap": pick(rng, 0.0, 2.5), "local_window_size": pick(rng, -1, 3)}
        operands = [*names, *kept, lasts, model.constant(total, "int32"), *(angles if attributes["do_rotary"] else [])]
        outputs = ["y", "present_key", "present_value"]
        model.node("GroupQueryAttention", operands, outputs, domain="com.microsoft", **attributes)
        for name in outputs:
            model.output(name, "float32")

    return write


def multi_head_attention(model: OnnxBuilder, rng: Rng) -> None:
    names = [quantized_input(model, rng, (BATCH, TOKENS, WIDTH), name) for name in "qkv"]
    bias = normal_constant(model, rng, 3 * WIDTH) if rng.integers(0, 2) else ""
    added = normal_constant(model, rng, BATCH, HEADS, TOKENS, TOKENS) if rng.integers(0, 2) else ""
    model.output(model.microsoft("MultiHeadAttention", [*names, bias, "", added], num_heads=HEADS), "float32")


def embed_layer_normalization(model: OnnxBuilder, rng: Rng) -> None:
    ids = [
        model.node("Mod", [model.input(name, "int32", (BATCH, TOKENS)), model.constant(words, "int32")])
        for name, words in (("tokens", 30), ("segments", 2))
    ]
    tables = [normal_constant(model, rng, count, WIDTH) for count in (30, 12, 2)]
    rows = [normal_constant(model, rng, WIDTH), normal_constant(model, rng, WIDTH)]
    names = ["y", "mask_index"]
    model.node("EmbedLayerNormalization", [*ids, *tables, *rows], names, domain="com.microsoft", epsilon=1e-12)
    model.output("y", "float32")
