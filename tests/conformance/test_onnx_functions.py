"""Float32 operators, compared with ONNX Runtime's. If the order of ONNX Runtime's operations is known, the bits are
equal. Softmax and SiLU follow ONNX Runtime's kernels for AVX-512. The results of its kernels for other machines differ
in the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.functions.real import FUNCTIONS
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import OctetError
from service.core.models.arrays import Array
from service.core.target import detect_host
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.real_values import of_every_size

OPERATORS = {"erf": "Erf", "exp": "Exp", "logistic": "Sigmoid", "tanh": "Tanh"}
# The samples include values of every magnitude. NaN and infinities are tested with the functions themselves.
GATES: list[tuple[str, dict[str, Any]]] = [
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("com.microsoft.Gelu", {}),
    ("com.microsoft.FastGelu", {}),
    ("com.microsoft.QuickGelu", {}),
    ("com.microsoft.QuickGelu", {"alpha": 1.0}),
]
SOFTMAXES = [*(((3, 40, length), -1) for length in (1, 15, 16, 17, 48, 77, 128, 197)), ((2, 19, 5, 6), 1)]
# The order of the sums differs from ONNX Runtime's, which changes results by a few units in the last place of the
# largest value.
NORMALIZED = 2e-6
NORMALIZATIONS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("LayerNormalization", (50, 7), (7,), {}),
    ("GroupNormalization", (2, 8, 9, 11), (8,), {"num_groups": 4}),
]
# ONNX Runtime has a different kernel for rows of fewer than 8 columns, or 16 columns without a mean.
EXACT_NORMALIZATIONS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *(("LayerNormalization", (300, length), (length,), {}) for length in (8, 11, 12, 64, 103, 192, 384)),
    ("LayerNormalization", (30, 5, 6, 24), (6, 24), {"axis": 2, "epsilon": 0.01}),
    *(("SimplifiedLayerNormalization", (300, length), (length,), {}) for length in (16, 39, 64, 192)),
]


def answers(builder: OnnxBuilder, result: str, x: Array) -> tuple[Array, Array]:
    """Returns the oracle's result and ONNX Runtime's."""
    builder.output(result, "float32")
    data = builder.build(21)
    imported = import_model(data)
    (ours,) = oracle.run(imported.module, get_mode(ONNXRUNTIME), [x])
    (theirs,) = Reference(data, optimized=True)([x])
    evidence.record(imported, ONNXRUNTIME, [[ours]], [[theirs]])
    return ours, theirs


def has_avx512() -> bool:
    return "avx512f" in detect_host().features


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_function(name: str) -> None:
    x = of_every_size()
    builder = OnnxBuilder()
    builder.output(builder.node(OPERATORS[name], [builder.input("x", "float32", x.shape)]), "float32")
    (theirs,) = Reference(builder.build(18), optimized=True)([x])
    with np.errstate(all="ignore"):
        ours = FUNCTIONS[name].evaluate(x)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("operator", "attributes"), GATES, ids=str)
def test_a_gate(operator: str, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(0).uniform(-9, 9, (40, 64)).astype(np.float32)
    builder = OnnxBuilder()
    domain, _, name = operator.rpartition(".")
    result = builder.node(name, [builder.input("x", "float32", x.shape)], domain=domain, **attributes)
    ours, theirs = answers(builder, result, x)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.skipif(not has_avx512(), reason="ONNX Runtime takes another kernel here")
@pytest.mark.parametrize(("shape", "axis"), SOFTMAXES, ids=str)
def test_a_softmax(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).normal(0, 9, shape).astype(np.float32)
    builder = OnnxBuilder()
    ours, theirs = answers(builder, builder.node("Softmax", [builder.input("x", "float32", shape)], axis=axis), x)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("operator", "shape", "own", "attributes"), NORMALIZATIONS, ids=str)
def test_a_normalization(
    operator: str, shape: tuple[int, ...], own: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    ours, theirs = _normalized(operator, shape, own, attributes, parameters=2)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=NORMALIZED)


@pytest.mark.skipif(not has_avx512(), reason="ONNX Runtime takes another kernel here")
@pytest.mark.parametrize("parameters", [1, 2])
@pytest.mark.parametrize(("operator", "shape", "own", "attributes"), EXACT_NORMALIZATIONS, ids=str)
def test_a_normalization_of_rows(
    operator: str, shape: tuple[int, ...], own: tuple[int, ...], attributes: dict[str, Any], parameters: int
) -> None:
    """Normalizations with a scale, or with a scale and an addend, give the same bits."""
    if "Simplified" in operator and parameters == 2:
        pytest.skip("it has no addend")
    ours, theirs = _normalized(operator, shape, own, attributes, parameters)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", [(1, 6, 9, 11), (2, 6, 8, 8), (3, 5, 49), (2, 1, 1, 3, 7), (1, 4, 2)], ids=str)
def test_a_normalization_of_channels(shape: tuple[int, ...]) -> None:
    """The bits are equal for every alignment of a channel in memory."""
    ours, theirs = _normalized("InstanceNormalization", shape, (shape[1],), {"epsilon": 1e-3}, parameters=2)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("shape", "size", "attributes"),
    [
        ((1, 96, 27, 27), 5, {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}),
        ((1, 7, 5, 3), 3, {"alpha": 0.1, "beta": 0.3, "bias": 2.0}),  # one value remains
        ((2, 9, 3, 3), 5, {"alpha": 1.0, "beta": 0.5}),  # two
        ((1, 1, 1, 3), 5, {"beta": 1.0}),
        ((1, 4, 5, 5), 9, {"alpha": 0.5, "beta": 2.0}),
        ((1, 4, 5, 4), 101, {"alpha": 0.5, "beta": 2.5}),
        ((1, 6, 4, 4), 3, {"alpha": 0.5, "bias": -1.0}),  # NaN
        ((1, 6, 4, 4), 3, {"alpha": 0.5, "bias": 0.0}),  # infinity
    ],
    ids=str,
)
@pytest.mark.parametrize("magnitude", [1.0, 40.0, 1e-20, 1e19])
def test_a_normalization_of_neighboring_channels(
    shape: tuple[int, ...], size: int, attributes: dict[str, Any], magnitude: float
) -> None:
    x = np.random.default_rng(0).normal(0, magnitude, shape).astype(np.float32)
    builder = OnnxBuilder()
    result = builder.node("LRN", [builder.input("x", "float32", shape)], size=size, **attributes)
    with np.errstate(all="ignore"):
        ours, theirs = answers(builder, result, x)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"size": 4}, "has a size of 4, which is not odd"),
        ({"size": 5, "beta": -1.0}, "has an alpha of .* and a beta of -1.0; both must be positive"),
        ({"size": 5, "beta": 4.0}, "has a beta of 4.0; of the integers, only those up to 3 are supported"),
    ],
)
def test_a_normalization_of_neighboring_channels_that_is_refused(attributes: dict[str, Any], problem: str) -> None:
    builder = OnnxBuilder()
    builder.output(builder.node("LRN", [builder.input("x", "float32", (1, 4, 5, 5))], **attributes), "float32")
    with pytest.raises(OctetError, match=problem):
        import_model(builder.build(21))


def _normalized(
    operator: str, shape: tuple[int, ...], own: tuple[int, ...], attributes: dict[str, Any], parameters: int
) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, shape).astype(np.float32)
    builder = OnnxBuilder()
    rows = [builder.constant(rng.normal(1, 0.3, own).astype(np.float32), "float32") for _ in range(parameters)]
    operands = [builder.input("x", "float32", shape), *rows]
    return answers(builder, builder.node(operator, operands, **attributes), x)


def test_a_batch_normalization() -> None:
    """Multiplying each channel by a factor and adding an addend gives the same bits."""
    rng, shape = np.random.default_rng(0), (2, 6, 9, 11)
    x = rng.normal(1, 2, shape).astype(np.float32)
    builder = OnnxBuilder()
    rows = [builder.constant(rng.uniform(0.1, 2, 6).astype(np.float32), "float32") for _ in range(4)]
    ours, theirs = answers(
        builder, builder.node("BatchNormalization", [builder.input("x", "float32", shape), *rows]), x
    )
    np.testing.assert_array_equal(ours, theirs)


def test_an_operator_is_reported_once() -> None:
    """The report has one entry, although the importer converts the operator to several operators."""
    builder = OnnxBuilder()
    x, row = builder.input("x", "float32", (2, 5, 24)), builder.constant(np.ones(24, np.float32), "float32")
    gate = builder.node("Gelu", [builder.node("LayerNormalization", [x, row, row])])
    builder.output(builder.quantized(builder.node("Softmax", [gate]), 0.01, 0, "uint8"), "uint8")
    floating = coverage.report(import_model(builder.build(21)).module)["floating"]
    names = [each["op"].split("_")[0] for each in floating if not each.get("boundary")]
    assert names == ["LayerNormalization", "Gelu", "Softmax"]


@pytest.mark.parametrize("axis", [1, 2])
def test_a_softmax_of_old_takes_all_axes_from_one_on(axis: int) -> None:
    x = np.random.default_rng(0).normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
    builder = OnnxBuilder()
    builder.output(builder.node("Softmax", [builder.input("x", "float32", x.shape)], axis=axis), "float32")
    data = builder.build(12)
    (ours,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [x])
    np.testing.assert_allclose(ours, Reference(data, optimized=True)([x])[0], rtol=1e-6)
