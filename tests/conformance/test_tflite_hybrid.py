"""Hybrid kernels (float32 activations, int8 weights), compared with LiteRT's own kernels and its default delegate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.errors import MalformedModel, Unsupported, UnsupportedOperator
from service.core.models.arrays import Array
from tests.support import evidence, litert
from tests.support.conformance import assert_compiled_equals, is_to_be_compiled
from tests.support.qnn_models import compile_and_run_each
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_operator import Constant, End, ints, operator_model

SAME, VALID, RELU6 = 0, 1, 3


def layer(
    name: str,
    shape: Sequence[int],
    weights: Sequence[int],
    out: Sequence[int],
    options: Any,
    *,
    axis: int | None = 0,
    bias: bool = True,
    bits: int = 8,
) -> bytes:
    """Returns a model of an operator with random int8 weights. They have scales along `axis`, or one scale if `axis` is
    None.
    """
    rng = np.random.default_rng(7)
    most = (1 << (bits - 1)) - 1
    stored = rng.integers(-most, most + 1, weights).astype(np.int8)
    scales = rng.uniform(1e-3, 2e-2, 1 if axis is None else weights[axis]).astype(np.float32)
    given: list[End | Constant] = [
        End(shape, np.float32),
        Constant(stored, Quant(scales.tolist(), axis=axis or 0), bits),
    ]
    if bias:
        given.append(Constant(rng.normal(0, 1, out[-1]).astype(np.float32)))
    version = {"BATCH_MATMUL": 4, "CONV_2D": 5, "DEPTHWISE_CONV_2D": 6, "FULLY_CONNECTED": 12}[name]
    return operator_model(name, given, [End(out, np.float32)], options, version)


def dense(asymmetric: bool, activation: int = 0, **options: Any) -> Any:
    return schema.FullyConnectedOptionsT(
        asymmetricQuantizeInputs=asymmetric, fusedActivationFunction=activation, **options
    )


def conv(stride: int = 1, padding: int = SAME, dilation: int = 1, activation: int = 0) -> Any:
    return schema.Conv2DOptionsT(
        strideH=stride, strideW=stride, padding=padding, dilationHFactor=dilation, dilationWFactor=dilation,
        fusedActivationFunction=activation,
    )  # fmt: skip


def depthwise(stride: int = 1, padding: int = SAME, multiplier: int = 1, dilation: int = 1) -> Any:
    return schema.DepthwiseConv2DOptionsT(
        strideH=stride, strideW=stride, padding=padding, depthMultiplier=multiplier, dilationHFactor=dilation,
        dilationWFactor=dilation,
    )  # fmt: skip


def product(asymmetric: bool = False, *, adj_x: bool = False, adj_y: bool = False) -> Any:
    return schema.BatchMatMulOptionsT(adjX=adj_x, adjY=adj_y, asymmetricQuantizeInputs=asymmetric)


BMM = "BATCH_MATMUL"
DW = "DEPTHWISE_CONV_2D"
LAYERS: dict[str, bytes] = {
    "dense, symmetric": layer("FULLY_CONNECTED", (5, 64), (33, 64), (5, 33), dense(False)),
    "dense, asymmetric": layer("FULLY_CONNECTED", (5, 64), (33, 64), (5, 33), dense(True, RELU6)),
    "dense, one scale": layer("FULLY_CONNECTED", (5, 37), (8, 37), (5, 8), dense(False), axis=None, bias=False),
    "dense, rank 3": layer("FULLY_CONNECTED", (2, 5, 40), (24, 40), (2, 5, 24), dense(True, keepNumDims=True)),
    "dense, 4 bits": layer("FULLY_CONNECTED", (5, 64), (33, 64), (5, 33), dense(False), bits=4),
    "dense, 2 bits": layer("FULLY_CONNECTED", (5, 64), (33, 64), (5, 33), dense(True), bits=2),
    "dense, 4 bits, odd": layer("FULLY_CONNECTED", (5, 63), (33, 63), (5, 33), dense(False), bits=4),
    "dense, 2 bits, odd": layer("FULLY_CONNECTED", (5, 62), (33, 62), (5, 33), dense(True), bits=2),
    "pixels, 4 bits": layer("CONV_2D", (2, 6, 5, 16), (12, 1, 1, 16), (2, 6, 5, 12), conv(), bits=4),
    "padded, 4 bits": layer("CONV_2D", (3, 9, 9, 8), (12, 3, 3, 8), (3, 9, 9, 12), conv(), bits=4),
    "grouped, 4 bits": layer("CONV_2D", (1, 8, 8, 16), (32, 3, 3, 4), (1, 8, 8, 32), conv(), bits=4),
    "padded, one scale, 4 bits": layer(
        "CONV_2D", (3, 9, 9, 8), (12, 3, 3, 8), (3, 9, 9, 12), conv(), axis=None, bits=4
    ),
    "product": layer(BMM, (2, 6, 64), (1, 64, 5), (2, 6, 5), product(), axis=2, bias=False),
    "product, one scale": layer(BMM, (6, 64), (64, 5), (6, 5), product(True), axis=None, bias=False),
    "products": layer(BMM, (1, 6, 64), (3, 5, 64), (3, 6, 5), product(adj_y=True), axis=1, bias=False),
    "products, transposed": layer(
        BMM, (2, 64, 6), (2, 64, 5), (2, 6, 5), product(True, adj_x=True), axis=2, bias=False
    ),
    "pixels": layer("CONV_2D", (2, 6, 5, 16), (12, 1, 1, 16), (2, 6, 5, 12), conv()),
    "pixels, one scale": layer("CONV_2D", (2, 6, 5, 16), (12, 1, 1, 16), (2, 6, 5, 12), conv(), axis=None),
    "pixels, grouped": layer("CONV_2D", (2, 6, 5, 16), (12, 1, 1, 4), (2, 6, 5, 12), conv()),
    "every other pixel": layer("CONV_2D", (2, 6, 5, 16), (12, 1, 1, 16), (2, 3, 3, 12), conv(2)),
    "padded": layer("CONV_2D", (3, 9, 9, 8), (12, 3, 3, 8), (3, 9, 9, 12), conv(activation=RELU6)),
    "padded, one scale": layer("CONV_2D", (3, 9, 9, 8), (12, 3, 3, 8), (3, 9, 9, 12), conv(), axis=None),
    "dilated": layer("CONV_2D", (1, 9, 9, 8), (12, 3, 3, 8), (1, 9, 9, 12), conv(dilation=2)),
    "grouped": layer("CONV_2D", (1, 8, 8, 16), (32, 3, 3, 4), (1, 8, 8, 32), conv()),
    "strided": layer("CONV_2D", (2, 9, 9, 5), (6, 3, 3, 5), (2, 4, 4, 6), conv(2, VALID)),
    "depthwise": layer(DW, (2, 9, 9, 16), (1, 3, 3, 16), (2, 9, 9, 16), depthwise(), axis=3),
    "depthwise, 10 channels": layer(DW, (2, 9, 9, 5), (1, 3, 3, 10), (2, 4, 4, 10), depthwise(2, VALID, 2), axis=3),
    "depthwise, 3 channels": layer(DW, (1, 9, 9, 3), (1, 5, 5, 3), (1, 9, 9, 3), depthwise(), axis=3),
    "depthwise, dilated": layer(DW, (1, 9, 9, 8), (1, 3, 3, 8), (1, 9, 9, 8), depthwise(dilation=2), axis=3),
}


def samples(data: bytes) -> list[Array]:
    """Returns inputs with ranges of one sign and of two signs, an empty range, and values on and between steps."""
    rng = np.random.default_rng(3)
    (detail,) = litert.interpreter(data).get_input_details()
    shape = tuple(int(size) for size in detail["shape"])
    rows = (shape[0], *(1 for _ in shape[1:]))
    wide = rng.normal(0.3, 1, shape) * rng.uniform(0.1, 5, rows)
    steps = rng.integers(-127, 128, shape) / 2 * rng.choice([1, 0.5, 0.1], rows)
    positive = rng.uniform(1, 2, shape)
    some = wide * (rng.uniform(size=shape) < 0.5) * (np.arange(shape[0]).reshape(rows) % 2)
    return [each.astype(np.float32) for each in (wide, steps, positive, some, -positive, np.zeros(shape))]


@pytest.mark.parametrize("numerics", [LITERT_REFERENCE, XNNPACK])
@pytest.mark.parametrize("name", LAYERS)
def test_hybrid_layer_equals_litert(name: str, numerics: str) -> None:
    data, mode = LAYERS[name], get_mode(numerics)
    imported, loaded = import_model(data), litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    assert coverage.report(imported.module)["integer_percent"] == 100
    sent = [[x] for x in samples(data)]
    computed = [oracle.run(imported.module, mode, each) for each in sent]
    for each, (actual,) in zip(sent, computed, strict=True):
        (expected,) = litert.run(loaded, each)
        evidence.compare(imported, numerics, [[actual]], [[expected]])
    if is_to_be_compiled():
        assert_compiled_equals(imported.module, numerics, sent, [], computed)
        if numerics == LITERT_REFERENCE:  # also without kernels
            plain = compile_and_run_each(canonicalize(imported.module, mode), sent)
            for (made,), (actual,) in zip(plain, computed, strict=True):
                np.testing.assert_array_equal(made, actual)


@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("size", [8, 9])
def test_transposed_convolution_equals_the_delegate(size: int, axis: int | None) -> None:
    """LiteRT's own kernel adds the real products of kernel taps one by one, so its results differ by rounding."""
    rng = np.random.default_rng(7)
    scales = rng.uniform(1e-3, 2e-2, 1 if axis is None else 3).astype(np.float32).tolist()
    weights = Constant(rng.integers(-127, 128, (3, 3, 3, 4)).astype(np.int8), Quant(scales))
    given: list[End | Constant] = [
        ints(2, size, size, 3),
        weights,
        End((2, 4, 4, 4), np.float32),
        Constant(np.ones(3, np.float32)),
    ]
    padding = SAME if size == 8 else VALID
    options = schema.TransposeConvOptionsT(padding=padding, strideW=2, strideH=2)
    data = operator_model("TRANSPOSE_CONV", given, [End((2, size, size, 3), np.float32)], options, 4)
    imported = import_model(data)
    x = rng.normal(0.3, 1, (2, 4, 4, 4)).astype(np.float32)
    for numerics in (XNNPACK, LITERT_REFERENCE):
        (expected,) = litert.run(litert.interpreter(data, reference=numerics == LITERT_REFERENCE), [x])
        (actual,) = oracle.run(imported.module, get_mode(numerics), [x])
        tolerance = 0 if numerics == XNNPACK else 4e-6  # sums of up to 16 products of about 1
        evidence.compare(imported, numerics, [[actual]], [[expected]], tolerance)


def weights_in_blocks(rows: int, depth: int, units: int, size: int) -> bytes:
    """Returns a FULLY_CONNECTED whose weights have 4 bits, and a scale for each block of `size` weights of a row."""
    rng, builder = np.random.default_rng(7), ModelBuilder()
    x, y = builder.tensor("x", (rows, depth), np.float32), builder.tensor("y", (rows, units), np.float32)
    weights = builder.constant("weights", rng.integers(-7, 8, (units, depth)).astype(np.int8), bits=4)
    scales = builder.constant("scales", rng.uniform(1e-3, 2e-2, (units, depth // size)).astype(np.float16))
    builder.graph.tensors[weights].quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization,
        details=schema.BlockwiseQuantizationT(scales=scales, zeroPoints=-1, blockSize=size),
    )
    bias = builder.constant("bias", rng.normal(0, 1, units).astype(np.float32))
    builder.operator("FULLY_CONNECTED", [x, weights, bias], [y], dense(False), 14)
    return builder.build([x], [y])


def test_weights_in_blocks_agree_with_the_delegate() -> None:
    """The float32 sums of the blocks are added in another order than in XNNPACK."""
    data = weights_in_blocks(5, 128, 33, 32)
    imported, loaded = import_model(data), litert.interpreter(data, reference=False)
    for x in samples(data):
        (expected,), (actual,) = litert.run(loaded, [x]), oracle.run(imported.module, get_mode(XNNPACK), [x])
        evidence.compare(imported, XNNPACK, [[actual]], [[expected]], 4e-6 * float(np.abs(expected).max()))
    with pytest.raises(UnsupportedOperator, match="only LiteRT's default delegate reads"):
        oracle.run(imported.module, get_mode(LITERT_REFERENCE), [x])


def test_depthwise_weights_of_one_scale_are_refused() -> None:
    """LiteRT reads one scale for each filter, which is beyond the end of the scales in the file."""
    data = layer(DW, (1, 9, 9, 8), (1, 3, 3, 8), (1, 9, 9, 8), depthwise(), axis=None)
    with pytest.raises(Unsupported, match="one scale for all its filters"):
        import_model(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            layer("CONV_2D", (1, 8, 8, 16), (12, 1, 1, 5), (1, 8, 8, 12), conv()),
            "has 16 channels, but its filters have 5",
        ),
        (layer(DW, (1, 8, 8, 16), (1, 3, 3, 8), (1, 8, 8, 8), depthwise(), axis=3), "for 16 channels"),
        (layer("FULLY_CONNECTED", (1, 16), (12, 5), (1, 12), dense(False)), "rows of 5"),
        (layer("FULLY_CONNECTED", (1, 16), (12, 16), (1, 16), dense(False)), "float32 \\[16\\] for 12"),
    ],
)
def test_weights_that_do_not_fit_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MalformedModel, match=what):
        import_model(data)
