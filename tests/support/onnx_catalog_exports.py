"""ONNX models of one operator each, in the forms that current exporters and ONNX Runtime's optimizer write.

As in `onnx_catalog_real`, a seeded generator makes all choices, and every model quantizes its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Rng, Write, pick
from tests.support.onnx_catalog_qdq import normal_constant, quantized_input
from tests.support.onnx_catalog_transformers import (
    WIDTH,
    attention,
    attention_between_bounds,
    attention_with_past,
    causal_attention,
    contributed,
    embed_layer_normalization,
    group_query_attention,
    multi_head_attention,
    multi_head_attention_with_past,
    quantized_attention,
    rotary_embedding,
    skip_layer_normalization,
    standard_attention_with_past,
)


def _node(op_type: str, shape: Sequence[int], *operands: Any, domain: str = "", **attributes: Any) -> Write:
    """Returns a function that writes an operator on one real tensor and constants.

    Args:
        operands: the constants. A list of numbers is used as it is; a shape means normally distributed values.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        names = [
            (
                ""
                if each is None
                else normal_constant(model, rng, *each)
                if isinstance(each, list)
                else model.constant(each)
            )
            for each in operands
        ]
        model.output(
            model.node(op_type, [quantized_input(model, rng, shape), *names], domain=domain, **attributes), "float32"
        )

    return write


def is_nan(model: OnnxBuilder, rng: Rng) -> None:
    """Writes attention as in Hugging Face's models, where completely masked rows become zeros."""
    x = quantized_input(model, rng, (2, 6, 6))
    mask = model.constant(np.where(rng.integers(0, 2, (6, 6)) * np.arange(6)[:, np.newaxis] > 0, 0, -np.inf), "float32")
    weights = model.node("Softmax", [model.node("Add", [x, mask])])
    nan = model.node("IsNaN", [weights])
    model.output(model.node("Where", [nan, model.constant(0, "float32"), weights]), "float32")


def is_infinite(model: OnnxBuilder, rng: Rng) -> None:
    logarithms = model.node("Log", [model.node("Relu", [quantized_input(model, rng, (2, 9))])])
    model.output(model.node("IsInf", [logarithms], detect_positive=int(rng.integers(0, 2))), "bool")


def clip_by_computed_bounds(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (2, 3, 7))
    half = model.node("Mul", [x, model.constant(0.5, "float32")])
    bounds = [model.node(op_type, [half], keepdims=0) for op_type in ("ReduceMin", "ReduceMax")]
    model.output(model.node("Clip", [x, *bounds]), "float32")


def indexed(op_type: str, shape: Sequence[int], indices: Sequence[int], most: int, **attributes: Any) -> Write:
    """Returns a function that writes an operator with indices. They are constant, or an input of the model."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        if rng.integers(0, 2):
            positions = model.constant(rng.integers(-most, most, indices), "int64")
        else:
            sent = model.input("places", "int64", indices)
            positions = model.node("Mod", [sent, model.constant(most, "int64")])
            positions = model.node("Sub", [positions, model.constant(int(rng.integers(0, 2)) * most, "int64")])
        model.output(model.node(op_type, [quantized_input(model, rng, shape), positions], **attributes), "float32")

    return write


def one_hot(model: OnnxBuilder, rng: Rng) -> None:
    sent = model.input("places", "int64", (2, 3))
    positions = model.node("Sub", [model.node("Mod", [sent, model.constant(8, "int64")]), model.constant(4, "int64")])
    values = model.constant([0.25, 2.0], "float32")
    hot = model.node("OneHot", [positions, model.constant(5, "int64"), values], axis=pick(rng, -1, 0, 1))
    model.output(hot, "float32")


def top_k(model: OnnxBuilder, rng: Rng) -> None:
    x, count = quantized_input(model, rng, (2, 9, 5)), model.constant([3], "int64")
    names = ["values", "places"]
    model.node("TopK", [x, count], names, axis=pick(rng, 1, -1), largest=int(rng.integers(0, 2)))
    model.output("values", "float32")
    model.output("places", "int64")


def scatter_nd(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (4, 5, 3))
    indices = model.constant([[0, 2], [3, -1], [-2, 0]], "int64")
    updates = model.node("Slice", [x, *(model.constant(each, "int64") for each in ([0, 0], [3, 1], [0, 1]))])
    rows = model.node("Squeeze", [updates, model.constant([1], "int64")])
    model.output(model.node("ScatterND", [x, indices, rows]), "float32")


def scatter_elements(model: OnnxBuilder, rng: Rng) -> None:
    x = quantized_input(model, rng, (3, 5))
    indices = model.constant([[4, 0], [1, -1]], "int64")
    updates = model.node("Slice", [x, *(model.constant(each, "int64") for each in ([0, 0], [2, 2], [0, 1]))])
    model.output(model.node("ScatterElements", [x, indices, updates], axis=1), "float32")


def scattered(op_type: str, indices: Sequence[int], updates: Sequence[int], most: int, **attributes: Any) -> Write:
    """Returns a function that writes a scatter with constant or computed indices. If several updates change the same
    element, they are reduced.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x, updated = quantized_input(model, rng, (3, 4, 5)), quantized_input(model, rng, updates, "updates")
        positions = model.constant(rng.integers(-most, most, indices), "int64")
        if rng.integers(0, 2):
            sent = model.node("Mod", [model.input("places", "int64", indices), model.constant(most, "int64")])
            positions = model.node("Sub", [sent, model.constant(int(rng.integers(0, 2)) * most, "int64")])
        reduction = pick(rng, "add", "mul", "max", "min")
        model.output(model.node(op_type, [x, positions, updated], reduction=reduction, **attributes), "float32")

    return write


def cumulative_mask(model: OnnxBuilder, rng: Rng) -> None:
    """Writes the computation of position ids from a mask, as in RoBERTa."""
    mask = model.node("Mod", [model.input("mask", "int64", (2, 6)), model.constant(2, "int64")])
    sums = model.node(
        "CumSum", [mask, model.constant(1, "int64")], exclusive=int(rng.integers(0, 2)), reverse=int(rng.integers(0, 2))
    )
    model.output(model.node("Mul", [sums, mask]), "int64")


def trilu(model: OnnxBuilder, rng: Rng) -> None:
    diagonal = model.constant(int(rng.integers(-2, 3)), "int64")
    model.output(
        model.node("Trilu", [quantized_input(model, rng, (2, 4, 5)), diagonal], upper=int(rng.integers(0, 2))),
        "float32",
    )


def cast(model: OnnxBuilder, rng: Rng) -> None:
    number, dtype = pick(rng, (6, "int32"), (7, "int64"))
    model.output(model.node("Cast", [quantized_input(model, rng, (2, 9))], to=number), dtype)


def einsum(model: OnnxBuilder, rng: Rng) -> None:
    equation, one, other = pick(
        rng,
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 5, 4)),
        ("bnc,hcd->bhnd", (2, 3, 4), (2, 4, 3)),
        ("...i,ij", (2, 3, 4), (4, 5)),
        ("i,j->ij", (4,), (3,)),
    )
    names = [quantized_input(model, rng, shape, name) for name, shape in (("a", one), ("b", other))]
    model.output(model.node("Einsum", names, equation=equation), "float32")


def batch_normalization(model: OnnxBuilder, rng: Rng) -> None:
    """Writes a batch normalization with statistics that the model computes."""
    x = quantized_input(model, rng, (2, 4, 5, 5))
    axes = [0, 2, 3]
    mean = model.node("ReduceMean", [x], axes=axes, keepdims=0)
    squares = model.node("ReduceMean", [model.node("Mul", [x, x])], axes=axes, keepdims=0)
    rows = [normal_constant(model, rng, 4), normal_constant(model, rng, 4), mean, squares]
    model.output(model.node("BatchNormalization", [x, *rows], epsilon=1e-2), "float32")


def resize_cubic(model: OnnxBuilder, rng: Rng) -> None:
    corners = pick(rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    sizes = model.constant([1, 2, int(rng.integers(3, 14)), int(rng.integers(3, 14))], "int64")
    attributes = {"coordinate_transformation_mode": corners, "cubic_coeff_a": pick(rng, -0.5, -0.75)}
    x = quantized_input(model, rng, (1, 2, 5, 6))
    outside = int(rng.integers(0, 2))
    model.output(
        model.node("Resize", [x, "", "", sizes], mode="cubic", exclude_outside=outside, **attributes), "float32"
    )


def resize_antialiased(model: OnnxBuilder, rng: Rng) -> None:
    corners = pick(rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    sizes = model.constant([1, 2, int(rng.integers(2, 14)), int(rng.integers(2, 14))], "int64")
    attributes = {"coordinate_transformation_mode": corners, "mode": pick(rng, "linear", "cubic")}
    outside = int(rng.integers(0, 2))
    operands = [quantized_input(model, rng, (1, 2, 9, 11)), "", "", sizes]
    model.output(model.node("Resize", operands, antialias=1, exclude_outside=outside, **attributes), "float32")


def fused_conv(model: OnnxBuilder, rng: Rng) -> None:
    activation, parameters = pick(rng, ("Relu", []), ("LeakyRelu", [0.125]), ("Clip", [0.0, 1.5]), ("Tanh", []))
    x = quantized_input(model, rng, (1, 3, 6, 7))
    operands = [normal_constant(model, rng, 4, 3, 3, 3), normal_constant(model, rng, 4)]
    if rng.integers(0, 2):
        operands.append(quantized_input(model, rng, (1, 4, 6, 7), "z"))
    attributes: dict[str, Any] = {"activation": activation, "pads": [1, 1, 1, 1]}
    if parameters:
        attributes["activation_params"] = parameters
    model.output(model.microsoft("FusedConv", [x, *operands], **attributes), "float32")


def fused_gemm(model: OnnxBuilder, rng: Rng) -> None:
    activation, alpha = pick(rng, ("Relu", 0.0), ("LeakyRelu", 0.125), ("Sigmoid", 0.0))
    rows = [normal_constant(model, rng, 5, 4), normal_constant(model, rng, 5)]
    attributes = {"activation": activation, "activation_alpha": alpha, "transB": 1}
    model.output(model.microsoft("FusedGemm", [quantized_input(model, rng, (3, 4)), *rows], **attributes), "float32")


def fused_matmul(model: OnnxBuilder, rng: Rng) -> None:
    turned = [int(rng.integers(0, 2)) for _ in range(2)]
    shapes = [(2, 3, 4)[:1] + ((4, 3) if turned[0] else (3, 4)), (2,) + ((5, 4) if turned[1] else (4, 5))]
    names = [quantized_input(model, rng, shape, name) for name, shape in zip("ab", shapes, strict=True)]
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": 0.125}
    model.output(model.microsoft("FusedMatMul", names, **attributes), "float32")


# Models whose results equal ONNX Runtime's bit for bit.
MOVED: dict[str, Write] = {
    "Cast": cast,
    "Clip": clip_by_computed_bounds,
    "CumSum": cumulative_mask,
    "GatherElements": indexed("GatherElements", (3, 4, 5), (2, 6, 5), 4, axis=1),
    "GatherND": indexed("GatherND", (3, 4, 5), (2, 2), 3),
    "GatherND of batches": indexed("GatherND", (2, 3, 5), (2, 4, 1), 3, batch_dims=1),
    "IsInf": is_infinite,
    "OneHot": one_hot,
    "Resize, antialiased": resize_antialiased,
    "ScatterElements": scatter_elements,
    "ScatterElements, reduced": scattered("ScatterElements", (3, 6, 4), (3, 6, 4), 4, axis=1),
    "ScatterND": scatter_nd,
    "ScatterND, reduced": scattered("ScatterND", (7, 2), (7, 5), 3),
    "Sign": _node("Sign", (2, 9)),
    "ThresholdedRelu": _node("ThresholdedRelu", (2, 9), alpha=0.3),
    "TopK": top_k,
    "Trilu": trilu,
}
# Models whose results differ by the rounding of float32 sums and functions. Epsilons are large, to avoid divisions by
# tiny numbers.
COMPUTED: dict[str, Write] = {
    "Atan": _node("Atan", (2, 9)),
    "BatchNormalization": batch_normalization,
    "Celu": _node("Celu", (2, 9), alpha=0.7),
    "Cos": _node("Cos", (2, 9)),
    "Einsum": einsum,
    "GroupNormalization": _node("GroupNormalization", (2, 6, 4, 3), [6], [6], num_groups=3, epsilon=1e-2),
    "InstanceNormalization": _node("InstanceNormalization", (2, 3, 4, 5), [3], [3], epsilon=1e-2),
    "IsNaN": is_nan,
    "LpNormalization": _node("LpNormalization", (2, 3, 9), axis=1),
    "MatMul of a row": _node("MatMul", (7,), [7, 4]),
    "MatMul by a column": _node("MatMul", (2, 3, 7), [7]),
    "Mish": _node("Mish", (2, 9)),
    "Resize": resize_cubic,
    "Selu": _node("Selu", (2, 9)),
    "SimplifiedLayerNormalization": _node("SimplifiedLayerNormalization", (2, 3, 9), [9], axis=-1, epsilon=1e-5),
    "Sin": _node("Sin", (2, 9)),
    "Softsign": _node("Softsign", (2, 9)),
    "Attention, past": standard_attention_with_past,
    "com.microsoft.Attention": attention,
    "com.microsoft.Attention, bounds": attention_between_bounds,
    "com.microsoft.Attention, past": attention_with_past,
    "com.microsoft.Attention, causal": causal_attention,
    "com.microsoft.BiasGelu": _node("BiasGelu", (2, 3, 9), [9], domain="com.microsoft"),
    "com.microsoft.EmbedLayerNormalization": embed_layer_normalization,
    "com.microsoft.FastGelu": contributed("FastGelu", (WIDTH,)),
    "com.microsoft.FusedConv": fused_conv,
    "com.microsoft.FusedGemm": fused_gemm,
    "com.microsoft.FusedMatMul": fused_matmul,
    "com.microsoft.GroupQueryAttention": group_query_attention(0),
    "com.microsoft.GroupQueryAttention, past": group_query_attention(4),
    "com.microsoft.GroupQueryAttention, some past": group_query_attention(4, computed=True),
    "com.microsoft.MultiHeadAttention": multi_head_attention,
    "com.microsoft.MultiHeadAttention, past": multi_head_attention_with_past,
    "com.microsoft.RotaryEmbedding": rotary_embedding,
    "com.microsoft.QAttention": quantized_attention,
    "com.microsoft.SkipLayerNormalization": skip_layer_normalization,
}
