"""Products of bfloat16 operands, compared with ONNX Runtime, which computes each Cast in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import detect_host
from tests.support import evidence
from tests.support.onnx_builder import DTYPES, OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import BFLOAT16, run_selected

Real = NDArray[np.float32]


class Model:
    """Writes an ONNX file with random values, which are the same in every run."""

    def __init__(self, *, rounds: bool) -> None:
        self.builder, self.rounds, self.rng = OnnxBuilder(), rounds, np.random.default_rng(0)

    def real(self, *shape: int) -> Real:
        return self.rng.standard_normal(shape).astype(np.float32)

    def input(self, name: str, *shape: int) -> str:
        x = self.builder.input(name, "float32", shape)
        return self._float(self.builder.node("Cast", [x], to=DTYPES["bfloat16"])) if self.rounds else x

    def weights(self, *shape: int) -> str:
        values = self.real(*shape)
        if not self.rounds:
            return self.builder.constant(values)
        return self._float(self.builder.constant(values.astype(ml_dtypes.bfloat16)))

    def _float(self, name: str) -> str:
        return self.builder.node("Cast", [name], to=DTYPES["float32"])


def convolution(model: Model) -> list[Real]:
    x, weights, bias = (
        model.input("x", 2, 3, 14, 13),
        model.weights(24, 3, 3, 3),
        model.builder.constant(model.real(24)),
    )
    model.builder.node("Conv", [x, weights, bias], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])
    return [model.real(2, 3, 14, 13)]


def dense(model: Model) -> list[Real]:
    x, weights, bias = model.input("x", 5, 70), model.weights(33, 70), model.builder.constant(model.real(33))
    model.builder.node("Gemm", [x, weights, bias], ["y"], transB=1)
    return [model.real(5, 70)]


def attention(model: Model) -> list[Real]:
    model.builder.node("MatMul", [model.input("x", 2, 19, 20), model.input("z", 2, 20, 19)], ["y"])
    return [model.real(2, 19, 20), model.real(2, 20, 19)]


def make_file(make: Callable[[Model], list[Real]], *, rounds: bool) -> tuple[bytes, list[Real]]:
    model = Model(rounds=rounds)
    inputs = make(model)
    model.builder.output("y", "float32")
    return model.builder.build(), inputs


@pytest.mark.parametrize("make", [convolution, dense, attention], ids=lambda each: str(each.__name__))
def test_answers_are_those_of_onnx_runtime_within_rounding(make: Callable[[Model], list[Real]], tmp_path: Path) -> None:
    """A sum has at most 70 products and stays below 64. So each of its 70 roundings changes it by at most 2**-19."""
    file, inputs = make_file(make, rounds=True)
    (expected,) = Reference(file, optimized=True)(inputs)
    imported = import_model(file)
    module = imported.module
    (ours,) = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
    assert np.abs(expected).max() < 64
    evidence.compare(imported, ONNXRUNTIME, [[ours]], [[expected]], 70 * 2.0**-19)
    # Rounding the operands changes the result much more, so this proves that Octet and ONNX Runtime both round them.
    (real,) = Reference(make_file(make, rounds=False)[0], optimized=True)(inputs)
    assert np.abs(real - expected).max() > 1e-2
    target = BFLOAT16 if BFLOAT16.runs_on(detect_host()) else detect_host().target
    selection, (compiled,) = run_selected(module, target, ONNXRUNTIME, inputs, tmp_path)
    np.testing.assert_array_equal(compiled, ours)
    assert "float_product" in [str(layer["kernel"]) for layer in selection.layers]
