from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn import ops, printer
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.facts import Facts, Scheme
from service.core.models.signature import ModelSignature, TensorSpec
from tests.support.qnn_models import module_of

IN, OUT = QuantizedType("uint8", (0.5,), (128,)), QuantizedType("uint8", (0.25,), (3,))
WEIGHT = QuantizedType("int8", (0.5, 0.25), axis=0)
SIGNATURE = ModelSignature((TensorSpec("x", "UINT8", (1, 3)),), (TensorSpec("y", "UINT8", (1, 2)),))


def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
    weight = relax.const(np.ones((2, 3), "int8"))
    sums = emit(ops.dense(inputs[0], weight, relax.const(np.ones(2, "int32")), IN, WEIGHT))
    return emit(ops.requantize(sums, accumulator_type(IN, WEIGHT, axis=1), OUT))


MODULE = module_of([((1, 3), "uint8")], body)


def test_the_facts_of_a_model() -> None:
    facts = facts_of(ImportedModel(MODULE, SIGNATURE, "tflite"))
    assert facts.operators == {"dense": 1, "requantize": 1}
    assert (facts.macs, facts.parameters, facts.parameter_bytes) == (6, 8, 14)
    assert facts.weights == Scheme(("int8",), ("per-axis",), symmetric=True)
    assert facts.activations == Scheme(("uint8",), ("per-tensor",), symmetric=False)
    assert Facts.from_json(facts.to_json()) == facts


def test_the_graph_as_text() -> None:
    assert printer.text_of(MODULE).splitlines() == [
        "!0 = !quant.uniform<u8:f32, 0.5:128>",
        "!1 = !quant.uniform<i8:f32:0, {0.5,0.25}>",
        "!2 = !quant.uniform<i32:f32:1, {0.25,0.125}>",
        "!3 = !quant.uniform<u8:f32, 0.25:3>",
        "main",
        "  %0: tensor<1x3xu8>  // x0",
        "  %1 = qnn.dense(%0, const<2x3xi8>, const<2xi32>) "
        "{in_type = !0, weight_type = !1, accum_dtype = int32} : tensor<1x2xi32>  // lv",
        "  %2 = qnn.requantize(%1) {in_type = !2, out_type = !3} : tensor<1x2xu8>  // lv1",
        "  %3 = %2 : tensor<1x2xu8>  // gv",
        "  return %3",
    ]
