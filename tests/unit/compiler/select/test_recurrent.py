"""LSTMs, computed by one kernel for all steps, equal the oracle bit for bit. Other rescaled layers do, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.tflite import import_model
from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.select.selection import Selection
from service.core.target import Target
from tests.support.selected import RUNNING, run_selected
from tests.support.tflite_recurrent import lstm_model, svdf_model

HERE = RUNNING
MODE = "xnnpack"
SEQUENCES: list[dict[str, Any]] = [
    {"cells": 32},
    {"cells": 40, "batch": 3, "time_major": True},
    {"cells": 33, "cifg": True, "steps": 4, "cell_clip": 0.5},
    {"cells": 64, "steps": 1, "batch": 2},
    {"cells": 128, "steps": 6, "cell_bits": 2, "hidden_zero_point": -7},
    {"cells": 48, "steps": 2, "cell_bits": 6, "seed": 3},
]


def equals_the_oracle(
    imported: ImportedModel, target: Target, scratch: Path, library_of: Callable[[Mode], KernelLibrary] | None = None
) -> Selection:
    """Runs a model from random states, compares the outputs with the oracle, and returns the selection."""
    rng = np.random.default_rng(1)
    shapes = [(spec.shape, np.int8) for spec in imported.signature.inputs]
    shapes += [(state.spec.shape, state.first().dtype.type) for state in imported.signature.states]
    inputs = [
        rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True) for shape, dtype in shapes
    ]
    expected = oracle.run(imported.module, get_mode(MODE), inputs)
    selection, outputs = run_selected(imported.module, target, MODE, inputs, scratch, library_of)
    for actual, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    return selection


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("case", SEQUENCES, ids=str)
def test_a_sequence_is_one_kernel(target: Target, case: dict[str, Any], tmp_path: Path) -> None:
    selection = equals_the_oracle(import_model(lstm_model(**case)), target, tmp_path)
    assert [layer["kernel"] for layer in selection.layers] == ["pack", "conv", "lstm"]
    assert {operator["operators"] for operator in selection.plain} <= {"strided_slice"}
    assert not selection.declined


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_each_step_is_a_kernel_if_the_batch_is_the_first_axis(target: Target, tmp_path: Path) -> None:
    selection = equals_the_oracle(import_model(lstm_model(batch=3, cells=32)), target, tmp_path)
    assert [layer["kernel"] for layer in selection.layers].count("lstm") == 3


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_narrow_and_projected_lstms_are_declined_with_the_reason(target: Target, tmp_path: Path) -> None:
    narrow = equals_the_oracle(import_model(lstm_model(cells=4)), target, tmp_path)
    assert any("its 4 cells are fewer than" in reason for reason in narrow.declined.values())
    projected = equals_the_oracle(import_model(lstm_model(cells=32, projected=20)), target, tmp_path)
    assert any("its hidden state is projected" in reason for reason in projected.declined.values())
    assert "dense+rescale" in {layer["operators"] for layer in projected.layers}


@pytest.mark.parametrize("target", HERE, ids=str)
def test_features_of_an_svdf_come_from_a_kernel(target: Target, tmp_path: Path) -> None:
    selection = equals_the_oracle(import_model(svdf_model(units=20, batch=2)), target, tmp_path)
    assert [layer["operators"] for layer in selection.layers] == ["pack", "dense+rescale"]


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_the_kernel_runs_on_the_portable_instruction_set(target: Target, tmp_path: Path) -> None:
    selection = equals_the_oracle(
        import_model(lstm_model(cells=12)), target, tmp_path, lambda mode: SimdLibrary(PortableIsa(), mode)
    )
    assert "lstm" in {layer["kernel"] for layer in selection.layers}
