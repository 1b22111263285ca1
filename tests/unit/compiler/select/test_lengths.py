"""The kernels of a model whose length is bound at a call compute only positions inside the length."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tvm

from service.compiler.importers.auto import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.lengths.bind import bind_length
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.target import Target, detect_host
from service.runtime import load_files
from tests.support.selected import RUNNING
from tools.kernel.building import lower

FIXTURES = Path(__file__).parents[3] / "fixtures" / "lengths"
LONGEST = 32
NAMES = ("input_ids", "attention_mask")
HERE = [target for target in RUNNING if target.architecture == detect_host().architecture]
# Not in order, so that memory contains values of longer inputs.
LENGTHS = (LONGEST, 1, 31, 2, 16, 8, 29, 23)


@cache
def imported(kind: str, length: int) -> tvm.IRModule:
    data = (FIXTURES / f"bert.{kind}.onnx").read_bytes()
    return import_model(data, lambda *_: None, {name: [1, length] for name in NAMES}).module


def inputs_of(length: int) -> list[Array]:
    rng = np.random.default_rng(length)
    mask = rng.integers(0, 2, (1, length))
    mask[:, 0] = 1
    return [rng.integers(3, 40, (1, length)), mask]


@cache
def wanted(kind: str, length: int) -> Array:
    (made,) = oracle.run(imported(kind, length), get_mode(ONNXRUNTIME), inputs_of(length))
    return made


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_each_length_gives_the_values_of_a_model_for_that_length(target: Target, kind: str, tmp_path: Path) -> None:
    bound = bind_length(imported(kind, LONGEST), imported(kind, LONGEST - 3), get_mode(ONNXRUNTIME))
    lowered = lower(bound, target, ONNXRUNTIME, inputs_of(LONGEST), tmp_path, varying=[(1,), (1,)])
    model = load_files(lowered.config, lowered.library, lowered.constants)
    for length in LENGTHS:
        padded = [np.pad(each, ((0, 0), (0, LONGEST - length))) for each in inputs_of(length)]
        (found,) = model.run_padded(padded, length)
        np.testing.assert_array_equal(found[:, :length], wanted(kind, length))
    whole = [
        layer["operators"]
        for layer in lowered.selection.layers
        if layer["kernel"] in ("conv", "float_product", "move", "pack", "product", "table") or layer.get("rows", 0) > 1
        if "length_" not in [each.name for each in lowered.selection.kernels[layer["symbol"]].tensor_program.params]
    ]
    # The rows of this mask are the mask of the input, repeated.
    assert set(whole) <= {"logical_and+broadcast_to+where"}
