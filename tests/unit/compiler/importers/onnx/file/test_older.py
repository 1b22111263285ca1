"""Operators of older operator sets: their attributes become inputs."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.file.older import modern
from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported


def operator(op_type: str, **attributes: object) -> Operator:
    return Operator(3, op_type, ("x",), ("y",), attributes)


def test_attributes_become_constant_inputs() -> None:
    constants: dict[str, Tensor] = {}
    result = modern(operator("Slice", starts=(0, 1), ends=(2, 3)), 9, constants)
    starts, ends = (constants[name].data for name in result.inputs[1:])
    np.testing.assert_array_equal([starts, ends], [[0, 1], [2, 3]])
    assert result.attributes == {}


def test_later_operator_sets_are_unchanged() -> None:
    given = operator("TopK", k=3)
    assert modern(given, 10, {}) is given


def test_a_new_constant_has_a_unique_name() -> None:
    constants = {"TopK #3/y/k": Tensor("TopK #3/y/k", "int64", (), np.array(1))}
    result = modern(operator("TopK", k=3, axis=1), 9, constants)
    assert [tensor.data.tolist() for tensor in constants.values() if tensor.data is not None] == [1, [3]]
    assert result.inputs[1] in constants
    assert result.attributes == {"axis": 1}


@pytest.mark.parametrize("value", ["text", ("text",), None])
def test_an_attribute_that_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(MalformedModel, match=r"TopK #3 has an attribute k that is not a list of numbers"):
        modern(operator("TopK", k=value), 9, {})


def test_a_mean_for_each_element_is_refused() -> None:
    with pytest.raises(Unsupported, match="spatial=0"):
        modern(operator("BatchNormalization", spatial=0), 8, {})
