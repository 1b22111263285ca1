"""Random models of one operator, compared with ONNX Runtime: types, shapes, attributes, and operands that are constant,
computed or left out.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import OctetError
from tests.conformance.onnx_random.draws import Draw, Drawn
from tests.conformance.onnx_random.elementwise import ELEMENTWISE
from tests.conformance.onnx_random.images import IMAGES
from tests.conformance.onnx_random.networks import NETWORKS
from tests.conformance.onnx_random.products import PRODUCTS
from tests.conformance.onnx_random.windows import WINDOWS
from tests.support import evidence
from tests.support.conformance import assert_compiled_equals
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_operator import model_of
from tests.support.onnx_reference import Reference

OPERATORS = {**ELEMENTWISE, **PRODUCTS, **NETWORKS, **WINDOWS, **IMAGES}
# Refusals that are allowed, because ONNX Runtime's result is empty, or depends on positions that the import removes.
REFUSALS = re.compile("larger than the .* padded elements|removes elements at the front|which is empty or too large")
SEEDS, MANY = (0, 1, 2), 200


def differs(drawn: Drawn) -> bool | None:
    """Compares the oracle with ONNX Runtime, and raises an AssertionError if they differ. Returns false if they do not
    differ, and None if ONNX Runtime does not run the model or the refusal is allowed.
    """
    data, sent = model_of(drawn.op_type, drawn.operands, drawn.outputs, drawn.opset, drawn.attributes)
    try:
        expected = Reference(data, optimized=False)(sent)
    except Exception:
        return None
    try:
        imported = import_model(data)
    except OctetError as error:
        if REFUSALS.search(error.message):
            return None
        raise AssertionError(f"{drawn}: {error.message}") from error
    actual = oracle.run(imported.module, get_mode(ONNXRUNTIME), sent)
    assert [each.shape for each in actual] == [each.shape for each in expected], str(drawn)
    largest = max((float(np.max(np.abs(each), initial=0, where=np.isfinite(each))) for each in expected), default=0.0)
    try:
        evidence.compare(imported, ONNXRUNTIME, [actual], [expected], steps=drawn.tolerance * largest)
    except AssertionError as error:
        raise AssertionError(f"{drawn}: {error}") from error
    return False


@pytest.mark.parametrize("name", OPERATORS)
def test_a_few_models(name: str) -> None:
    assert any(differs(OPERATORS[name](Draw(seed))) is False for seed in SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_many_models(name: str) -> None:
    results = [differs(OPERATORS[name](Draw(seed))) for seed in range(MANY)]
    assert results.count(False) > MANY // 2, "ONNX Runtime runs too few of these models"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_compiled_models(name: str) -> None:
    for seed in range(6):
        drawn = OPERATORS[name](Draw(seed))
        if differs(drawn) is None:
            continue
        data, sent = model_of(drawn.op_type, drawn.operands, drawn.outputs, drawn.opset, drawn.attributes)
        module = import_model(data).module
        assert_compiled_equals(module, ONNXRUNTIME, [sent], [], [oracle.run(module, get_mode(ONNXRUNTIME), sent)])


# Operators that only other providers of ONNX Runtime have, or that no build here can compute.
ORDERED = ("Attention", "Gelu", "LayerNormalization", "LongformerAttention", "MatMul")
UNKNOWN = (
    *("QuantizeWithOrder", "DequantizeWithOrder", *(f"QOrdered{name}" for name in ORDERED)),
    *("QLinearReduceMean", "QuantizeBFP", "DequantizeBFP", "MatMulBnb4", "MatMulFpQ4", "QMoE"),
)


@pytest.mark.parametrize("op_type", UNKNOWN)
def test_other_quantized_operators_are_refused_by_name(op_type: str) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", [1, 4])
    model.output(model.microsoft(op_type, [x, model.constant(0.1, "float32")]), "float32")
    with pytest.raises(OctetError, match=f"com.microsoft.{op_type}"):
        import_model(model.build())
