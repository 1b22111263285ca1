"""Reads tensors: constants, quantization, and the reasons why a tensor cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as litert_schema

from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.importer import import_model
from service.compiler.importers.tflite.model import Model, Tensor
from service.core.errors import MalformedModel, Unsupported
from tests.support.tflite_builder import ModelBuilder, Quant, serialize

Bend = Callable[[ModelBuilder], None]


def file(bend: Bend = lambda builder: None) -> bytes:
    """Returns a file with `y = x + k` (ADD), where k is a constant, after `bend` has changed it."""
    builder = ModelBuilder()
    x = builder.tensor("x", (2, 3), np.int8, Quant(0.5, -3))
    k = builder.constant("k", np.arange(6, dtype=np.int8).reshape(2, 3), Quant([0.25, 0.5, 1.0], axis=1))
    y = builder.tensor("y", (2, 3), np.int8, Quant(1.0))
    builder.operator("ADD", [x, k], [y], litert_schema.AddOptionsT())
    builder.build([x], [y])
    bend(builder)
    return serialize(builder.model)


def tensor(name: str, bend: Bend = lambda builder: None) -> Tensor:
    model: Model = read_model(file(bend))
    (found,) = (tensor for tensor in model.tensors if tensor.name == name)
    return found


def setting(index: int, **fields: Any) -> Bend:
    """Returns a `bend` function that sets fields of a tensor. A name that begins with `q_` is a field of its
    quantization.
    """

    def bend(builder: ModelBuilder) -> None:
        table = builder.graph.tensors[index]
        for name, value in fields.items():
            owner = table.quantization if name.startswith("q_") else table
            setattr(owner, name.removeprefix("q_"), value)

    return bend


X, K, Y = 0, 1, 2


def test_activation_has_shape_dtype_and_quantization() -> None:
    x = tensor("x")
    assert (x.dtype, x.shape, x.data, x.is_constant, x.oddity) == ("int8", (2, 3), None, False, None)
    assert x.quantization is not None
    assert (x.quantization.scales, x.quantization.zero_points) == ((0.5,), (-3,))
    assert not x.quantization.per_axis


def test_constant_has_its_elements_read_only() -> None:
    k = tensor("k")
    assert k.data is not None
    np.testing.assert_array_equal(k.data, np.arange(6).reshape(2, 3))
    assert not k.data.flags.writeable


def test_quantization_per_axis_keeps_float32_scales_exactly() -> None:
    quantization = tensor("k", setting(K, q_scale=[0.1, 0.2, 0.3])).quantization
    assert quantization is not None
    assert quantization.per_axis
    assert quantization.axis == 1
    assert quantization.scales == tuple(float(np.float32(scale)) for scale in (0.1, 0.2, 0.3))


def test_dynamic_batch_in_the_shape_signature_is_imported_at_the_recorded_shape() -> None:
    assert tensor("x", setting(X, shapeSignature=[-1, 3])).shape == (2, 3)


def test_a_name_that_is_not_utf8_is_escaped() -> None:
    assert read_model(file(setting(X, name=b"caf\xe9"))).tensors[X].name == "caf\\xe9"


def test_a_tensor_without_a_name_is_named_by_its_number() -> None:
    assert read_model(file(setting(X, name=None))).tensors[X].label == "tensor #0"


@pytest.mark.parametrize(
    ("bend", "oddity"),
    [
        (setting(X, shape=[-1, 3]), "dynamic shape"),
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


@pytest.mark.parametrize(
    ("bend", "what"),
    [
        (setting(X, q_scale=[0.0]), "scale is 0.0"),
        (setting(X, q_scale=[-1.0]), "scale is -1.0"),
        (setting(X, q_scale=[np.nan]), "scale is nan"),
        (setting(X, q_scale=[np.inf]), "scale is inf"),
        (setting(X, q_zeroPoint=[128]), "zero point is 128"),
        (setting(X, q_zeroPoint=[-(1 << 62)]), "zero point is -4611686018427387904"),
    ],
)
def test_unusable_quantization_is_refused_at_its_operator(bend: Bend, what: str) -> None:
    """LiteRT loads such a file, so only the operator refuses it."""
    with pytest.raises(Unsupported, match=f"ADD #0 uses the tensor x, whose {what}"):
        import_model(file(bend))


def test_the_first_buffer_means_no_buffer() -> None:
    def bend(builder: ModelBuilder) -> None:
        builder.model.buffers[0].data = np.zeros(6, np.uint8)

    assert not tensor("x", bend).is_constant


def test_data_in_another_file_is_an_oddity() -> None:
    assert tensor("x", setting(X, externalBuffer=1)).oddity == "has its data in another file"
