"""Decodes messages by the schema."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.onnx.file.message import read_message
from service.core.errors import MalformedModel
from tests.support.onnx_builder import message, number, varint


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1))
def test_numbers_may_be_packed_or_not(values: list[int]) -> None:
    alone = b"".join(number(1, value) for value in values)
    packed = message(1, b"".join(map(varint, values)))
    for data in (alone, packed):
        np.testing.assert_array_equal(read_message(memoryview(data), "Tensor")["dims"], values)


def test_a_message_in_several_parts_is_merged() -> None:
    """Protobuf's own parsers merge such parts, too."""
    graph = read_message(memoryview(message(7, message(2, "a")) + message(7, message(1, b"") + message(2, "b"))))[
        "graph"
    ]
    assert bytes(graph["name"]) == b"b"
    assert len(graph["node"]) == 1


def test_a_field_of_another_type_is_refused() -> None:
    with pytest.raises(MalformedModel, match=r"Model.graph, it is written as varint"):
        read_message(memoryview(number(7, 1)))
