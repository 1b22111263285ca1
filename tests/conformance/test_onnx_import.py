"""Models of one operator each, compared with ONNX Runtime bit for bit on random and extreme inputs.

The oracle runs the imported model. `tests/unit/compiler` compares compiled code with the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.verification.vectors import sample_inputs
from tests.support import evidence
from tests.support.examples import examples
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import CATALOG, case
from tests.support.onnx_catalog_dynamic import DYNAMIC
from tests.support.onnx_catalog_exports import COMPUTED
from tests.support.onnx_catalog_exports import MOVED as EXPORTED
from tests.support.onnx_catalog_qdq import QDQ, clipped_conv, real_bias
from tests.support.onnx_catalog_real import MOVED, REAL, ROUNDED_ONCE, stored_conv_transpose
from tests.support.onnx_reference import Reference

CASES, FEW, SAMPLES = examples(15), examples(6), 12
WORDS = 30  # number of rows in a table of embeddings
OPSETS = {"int4 in blocks": 21, "uint4 in blocks": 21, "of 16 bits": 21, "ReduceMax": 12, "ReduceMin": 12}
OPSETS |= {
    "Attention, past": 23,
    "Mish": 18,
    "GroupNormalization": 21,
    "Resize": 19,
    "Resize, antialiased": 19,
    "ScatterElements, reduced": 18,
    "ScatterND, reduced": 18,
}
MODE = get_mode(ONNXRUNTIME)
Arrays = list[np.ndarray[Any, Any]]


def answers(model: bytes, seed: int, *, optimized: bool) -> list[tuple[Arrays, Arrays]]:
    """Returns, for each sample, Octet's results and ONNX Runtime's."""
    imported, reference = import_model(model), Reference(model, optimized=optimized)
    samples = sample_inputs(imported.signature, SAMPLES, seed)
    # The results of ONNX Runtime's optimized operators are undefined for infinities and NaN.
    samples = [[np.clip(x, -100, 100) if x.dtype.kind == "f" and optimized else x for x in each] for each in samples]
    # A larger index would be an error.
    samples = [[x % WORDS if x.dtype == np.int64 else x for x in each] for each in samples]
    return [(oracle.run(imported.module, MODE, sample), reference(sample)) for sample in samples]


def equal(model: bytes, seed: int, *, optimized: bool) -> None:
    actual, expected = zip(*answers(model, seed, optimized=optimized), strict=True)
    evidence.compare(import_model(model), ONNXRUNTIME, actual, expected)


@pytest.mark.parametrize("name", CATALOG)
def test_quantized_operators(name: str) -> None:
    """The reference is ONNX Runtime without its optimizer, which runs the operators of the file."""
    for seed in range(CASES):
        equal(case(name, seed), seed, optimized=False)


@pytest.mark.parametrize("name", QDQ)
def test_float_operators_between_conversions(name: str) -> None:
    """The reference is ONNX Runtime with its optimizer, which creates the same quantized operators as Octet."""
    for seed in range(CASES):
        equal(case(name, seed, QDQ), seed, optimized=True)


@pytest.mark.parametrize("name", MOVED)
def test_what_moves_between_conversions(name: str) -> None:
    for seed in range(FEW):
        equal(case(name, seed, MOVED), seed, optimized=True)


@pytest.mark.parametrize("name", DYNAMIC)
def test_scales_that_are_found_when_the_model_runs(name: str) -> None:
    for seed in range(FEW):
        equal(case(name, seed, DYNAMIC), seed, optimized=True)


@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_real_values_that_are_rounded_once(name: str) -> None:
    """The reference is ONNX Runtime without its optimizer, which runs the operators of the file."""
    for seed in range(FEW):
        equal(case(name, seed, ROUNDED_ONCE, opset=OPSETS.get(name, 17)), seed, optimized=False)


@pytest.mark.parametrize("name", EXPORTED)
def test_what_exporters_write_and_nothing_rounds(name: str) -> None:
    for seed in range(FEW):
        equal(case(name, seed, EXPORTED, opset=OPSETS.get(name, 17)), seed, optimized=False)


@pytest.mark.parametrize("name", REAL)
def test_real_values_that_are_functions_and_sums(name: str) -> None:
    """ONNX Runtime computes these functions in float32, and Octet computes them in float64 with one rounding. Both
    results are within the rounding errors of a few dozen float32 operations.
    """
    for seed in range(FEW):
        within_rounding(case(name, seed, REAL, opset=OPSETS.get(name, 17)), seed)


@pytest.mark.parametrize("name", COMPUTED)
def test_what_exporters_and_optimizers_write(name: str) -> None:
    """The tolerance is that of `test_real_values_that_are_functions_and_sums`."""
    for seed in range(FEW):
        within_rounding(case(name, seed, COMPUTED, opset=OPSETS.get(name, 17)), seed)


def within_rounding(model: bytes, seed: int) -> None:
    actual, expected = zip(*answers(model, seed, optimized=False), strict=True)
    largest = max(float(np.abs(each[0]).max()) for each in expected)
    evidence.compare(import_model(model), ONNXRUNTIME, actual, expected, steps=1e-5 * max(largest, 1))


def test_a_convolution_with_a_clip_of_its_own() -> None:
    """ONNX Runtime computes this convolution in float32, and Octet computes it in integers. The results agree within
    one step."""
    for seed in range(CASES):
        model = OnnxBuilder()
        step = clipped_conv(model, np.random.default_rng(seed))
        for ours, theirs in answers(model.build(), seed, optimized=True):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1.001 * step)


def test_a_transposed_convolution_between_conversions() -> None:
    """Octet computes a transposed convolution in integers, too. The results agree with ONNX Runtime's within one
    step."""
    for seed in range(FEW):
        model = OnnxBuilder()
        step = stored_conv_transpose(model, np.random.default_rng(seed))
        for ours, theirs in answers(model.build(), seed, optimized=True):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1.001 * step)


def test_real_values_out_of_a_dense_layer_with_a_real_bias() -> None:
    """ONNX Runtime computes this layer in float32, in its own order. Octet computes it in integers and adds the bias as
    a real value. Both results are within the rounding errors of a float32 sum of the row's terms.
    """
    model = OnnxBuilder()
    depth = real_bias(model, np.random.default_rng(0))
    for ours, theirs in answers(model.build(), 0, optimized=True):
        tolerance = depth * np.finfo(np.float32).eps * np.abs(theirs[0]).max()
        np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=tolerance)
