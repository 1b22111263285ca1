"""Fields of a FlatBuffer are read by the names of a schema."""

from __future__ import annotations

import pytest

from service.compiler.importers.flatbuffer.tables import read_root
from service.compiler.importers.tflite.file.schema import MODEL as SCHEMA
from service.core.errors import MalformedModel
from tests.support.tflite_catalog import MODELS

DATA = MODELS["conv int8"]()


def test_numbers_tables_and_vectors_are_read() -> None:
    root = read_root(DATA, SCHEMA)
    (subgraph,) = root.tables("subgraphs")
    tensors = subgraph.tables("tensors")
    assert root.unsigned("version") == 3
    assert [tensor.name for tensor in tensors] == ["Tensor"] * len(tensors)
    assert all(tensor.numbers("shape", "int32").dtype == "int32" for tensor in tensors)


def test_a_field_that_the_file_omits_is_empty() -> None:
    root = read_root(DATA, SCHEMA)
    assert not root.has("metadata")
    assert root.tables("metadata") == ()


def test_data_is_verified_first() -> None:
    with pytest.raises(MalformedModel):
        read_root(DATA[:40], SCHEMA)
