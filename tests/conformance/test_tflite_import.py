"""An imported file gives the same results as LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.importers.tflite.file.reader import read_model
from tests.support import litert
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.shared_data import TFLITE_MODELS, require_shared_data
from tests.support.tflite_catalog import MODELS

# The models that are small enough for the oracle. Other tests compile and run whole models.
SMALL_MODELS = [path for path in TFLITE_MODELS if path.stat().st_size < 1 << 20]


@pytest.mark.parametrize("name", MODELS)
def test_operator_equals_litert(name: str) -> None:
    assert_oracle_equals_litert(MODELS[name](), samples=5)


@pytest.mark.parametrize("path", TFLITE_MODELS, ids=lambda path: path.stem)
def test_every_tensor_of_a_real_model_is_what_litert_says(path: Path) -> None:
    data = path.read_bytes()
    model = read_model(data)
    # LiteRT appends its own tensors to those of the file.
    details = litert.interpreter(data).get_tensor_details()[: len(model.tensors)]
    for tensor, detail in zip(model.tensors, details, strict=True):
        assert tensor.index == detail["index"]
        assert tensor.name == detail["name"]
        assert tensor.shape == tuple(detail["shape"])
        assert tensor.dtype == np.dtype(detail["dtype"]).name
        quantization = detail["quantization_parameters"]
        assert list(tensor.quantization.scales if tensor.quantization else ()) == quantization["scales"].tolist()
        assert (
            list(tensor.quantization.zero_points if tensor.quantization else ()) == quantization["zero_points"].tolist()
        )
    # The importer also infers the output shape of every operator and compares it with the file.
    signature = import_model(data).signature
    loaded = litert.interpreter(data)
    for specs, ends in (
        (signature.inputs, loaded.get_input_details()),
        (signature.outputs, loaded.get_output_details()),
    ):
        assert [(spec.shape, spec.dtype) for spec in specs] == [(tuple(end["shape"]), end["dtype"]) for end in ends]


@pytest.mark.parametrize("path", SMALL_MODELS, ids=lambda path: path.stem)
def test_real_model_equals_litert(path: Path) -> None:
    assert_oracle_equals_litert(path.read_bytes(), samples=1)


def test_the_real_models_are_there() -> None:
    require_shared_data()
    assert len(TFLITE_MODELS) >= 7
