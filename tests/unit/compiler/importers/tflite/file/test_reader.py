"""Reads the tensors of a file, and refuses contradictory ones."""

from __future__ import annotations

import pytest
from ai_edge_litert import schema_py_generated as litert_schema

from service.compiler.importers.tflite.file.reader import read_model
from service.core.errors import MalformedModel
from tests.support.tflite_builder import ModelBuilder
from tests.support.tflite_tensors import Bend, K, X, file, setting


def test_a_name_that_is_not_utf8_is_escaped() -> None:
    assert read_model(file(setting(X, name=b"caf\xe9"))).tensors[X].name == "caf\\xe9"


def test_an_open_size_is_one() -> None:
    tensor = read_model(file(setting(X, shape=[-1, 3]))).tensors[X]
    assert (tensor.shape, tensor.signature, tensor.is_open) == ((1, 3), (-1, 3), True)


def test_a_tensor_without_a_name_is_named_by_its_number() -> None:
    assert read_model(file(setting(X, name=None))).tensors[X].label == "tensor #0"


@pytest.mark.parametrize(
    ("bend", "oddity"),
    [
        (setting(X, shape=[-2, 3]), "has the shape"),
        (setting(X, shape=[1 << 20, 1 << 20]), "more than 2 GiB"),
        (setting(X, shape=[0x7FFFFFFF] * 8), "more than 2 GiB"),
        (setting(X, shape=[1] * 9), "9 dimensions"),
        (setting(X, shape=[1] * 5000), "5000 dimensions"),
        (setting(X, type=litert_schema.TensorType.STRING), "element type"),
        (setting(X, type=litert_schema.TensorType.INT4), "element type"),
        (setting(X, type=99), "element type"),
        (setting(K, sparsity=litert_schema.SparsityParametersT()), "sparse"),
        (
            setting(
                K,
                q_detailsType=litert_schema.QuantizationDetails.BlockwiseQuantization,
                q_details=litert_schema.BlockwiseQuantizationT(),
            ),
            "in blocks",
        ),
    ],
)
def test_unusable_tensors_have_an_oddity(bend: Bend, oddity: str) -> None:
    assert any(oddity in (tensor.oddity or "") for tensor in read_model(file(bend)).tensors)


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (setting(K, buffer=7), "is in buffer 7; the file has 2 buffers"),
        (setting(K, shape=[2, 4], q_scale=[1] * 4, q_zeroPoint=[0] * 4), "has 6 bytes, but"),
        (setting(K, type=litert_schema.TensorType.INT32), "has 6 bytes, but int32"),
        (setting(X, q_zeroPoint=None), "1 scales, but 0 zero points"),
        (setting(X, q_zeroPoint=[0, 0]), "1 scales, but 2 zero points"),
        (setting(X, q_scale=[1, 2], q_zeroPoint=[0, 0], q_quantizedDimension=1), "2 scales for the shape"),
        (setting(K, q_quantizedDimension=2), "along dimension 2, but has 2 dimensions"),
        (setting(K, q_quantizedDimension=-1), "along dimension -1, but has 2 dimensions"),
    ],
)
def test_contradictory_tensors_are_malformed(bend: Bend, message: str) -> None:
    with pytest.raises(MalformedModel, match=message) as caught:
        read_model(file(bend))
    assert caught.value.tensor in ("x", "k")


def outside(offset: int, size: int) -> Bend:
    """Returns a `bend` function that moves the constant's bytes after the FlatBuffer, as in files larger than 2 GB."""

    def bend(builder: ModelBuilder) -> None:
        builder.model.buffers[1] = litert_schema.BufferT(offset=offset, size=size)

    return bend


def test_a_constant_after_the_flatbuffer_is_read() -> None:
    flatbuffer = file(outside(1 << 20, 6))
    data = flatbuffer.ljust(1 << 20, b"\0") + bytes([9, 8, 7, 6, 5, 4])
    k = read_model(data).tensors[K]
    assert k.data is not None
    assert k.data.reshape(-1).tolist() == [9, 8, 7, 6, 5, 4]


@pytest.mark.parametrize(
    ("offset", "size"), [(1 << 20, 6), (8, 1 << 40), (0xFFFFFFFFFFFFFFFF, 6), (2, 0xFFFFFFFFFFFFFFFF)]
)
def test_constant_outside_the_file_is_malformed(offset: int, size: int) -> None:
    with pytest.raises(MalformedModel, match="has its data at bytes"):
        read_model(file(outside(offset, size)))
