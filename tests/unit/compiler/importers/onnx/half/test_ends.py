"""Inputs and outputs of small real types are float32 for clients, with ONNX Runtime's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.references.onnxruntime import open_session
from service.core.builds.numerics import ONNXRUNTIME
from tests.support import onnx_builder
from tests.support.onnx_builder import OnnxBuilder

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
SMALL = ("bfloat16", "float8e4m3fn", "float8e5m2")


def model_of(dtype: str) -> bytes:
    """Returns a model whose input and first output have a type, with a subgraph that reads the input."""
    onnx_builder.DTYPES.setdefault(dtype, NUMBERS[dtype])
    branch = OnnxBuilder()
    branch.node("Cast", ["x"], ["chosen"], to=NUMBERS["float32"])
    branch.output("chosen", "float32")
    model = OnnxBuilder()
    model.input("x", dtype, [2, 3])
    condition = model.constant(np.array(True))
    model.node("If", [condition], ["real"], then_branch=branch.graph(), else_branch=branch.graph())
    model.node("Cast", [model.node("Exp", ["real"])], ["y"], to=NUMBERS[dtype])
    model.node("Cast", ["y"], ["z"], to=NUMBERS["float32"])
    model.output("y", dtype)
    model.output("z", "float32")
    return model.build(21)


@pytest.mark.parametrize("dtype", SMALL)
def test_values_are_those_of_onnx_runtime(dtype: str, tmp_path: Path) -> None:
    data, x = model_of(dtype), np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    imported = import_model(data)
    assert [spec.datatype for spec in (*imported.signature.inputs, *imported.signature.outputs)] == ["FP32"] * 3
    assert f"the input x is {dtype} in the file, and float32 here" in imported.notices
    results = oracle.run(imported.module, get_mode(ONNXRUNTIME), [x])
    (tmp_path / "model.onnx").write_bytes(data)
    expected = open_session(str(tmp_path / "model.onnx"), {})([x])
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_other_models_are_unchanged() -> None:
    model = OnnxBuilder()
    model.output(model.node("Exp", [model.input("x", "float32", [2])]), "float32")
    assert import_model(model.build()).notices == ()
