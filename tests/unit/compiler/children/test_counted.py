from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.children.counted import counted
from service.compiler.importers.auto import import_model
from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn import ops
from service.core.errors import Unsupported
from service.core.models.ranges import LENGTH
from service.core.models.signature import State, TensorSpec
from tests.support.qnn_models import i8, module_of

INT8 = Path(__file__).parents[4] / "examples" / "digits_int8.tflite"


def _digits() -> ImportedModel:
    return import_model(INT8.read_bytes(), lambda op, tensor: None, {})


def test_the_counts_are_outputs_after_those_of_the_model() -> None:
    digits = _digits()
    found, ranges = counted(digits)
    assert found.signature.outputs[:1] == digits.signature.outputs
    assert [spec.name for spec in found.signature.outputs[1:]] == [f"counts of {each.tensor}" for each in ranges]
    assert {spec.shape for spec in found.signature.outputs[1:]} == {(LENGTH,)}


def test_a_model_that_keeps_state_is_refused() -> None:
    digits = _digits()
    state = State(TensorSpec("state", "INT8", (1,)), np.zeros(1, np.int8).tobytes())
    stateful = replace(digits, signature=replace(digits.signature, states=(state,)))
    with pytest.raises(Unsupported, match="keeps state"):
        counted(stateful)


def test_a_model_without_stored_values_is_refused() -> None:
    unit = i8(1.0)
    module = module_of([((4,), "int8")], lambda emit, params: emit(ops.dequantize(params[0], unit)))
    assert isinstance(module["main"], relax.Function)
    with pytest.raises(Unsupported, match="no operator of this model stores values"):
        counted(replace(_digits(), module=module))
