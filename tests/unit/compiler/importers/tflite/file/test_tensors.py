"""Reads tensors: constants, quantization, and the reasons why a tensor cannot be used."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.importer import import_model
from service.core.errors import Unsupported
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_tensors import Bend, K, X, file, setting, tensor


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


@pytest.mark.parametrize("bits", [4, 2])
def test_packed_constants_are_read_as_int8(bits: int) -> None:
    builder = ModelBuilder()
    values = np.arange(-(1 << (bits - 1)), 1 << (bits - 1), dtype=np.int8)[:-1]  # the last byte is not full
    x, y = builder.tensor("x", (1, values.size), np.float32), builder.tensor("y", (1, 1), np.float32)
    weights = builder.constant("weights", values[None], Quant(0.5), bits)
    builder.operator("FULLY_CONNECTED", [x, weights], [y])
    read = read_model(builder.build([x], [y])).tensors[weights]
    assert (read.dtype, read.packed_bits) == ("int8", bits)
    assert read.data is not None
    np.testing.assert_array_equal(read.data, values[None])
