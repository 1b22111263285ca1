"""The inputs that the oracle chooses: their number, that every run chooses the same ones, and the cases that they
reach.
"""

from __future__ import annotations

import dataclasses
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from service.compiler.children import probing
from service.compiler.importers.auto import import_model
from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.verification.vectors import MOST_PROBES, PATTERNS, read_probes, sample_inputs
from tests.support.compiled import EXAMPLES

MODE = get_mode(LITERT_REFERENCE)


@pytest.fixture(scope="module")
def digits() -> ImportedModel:
    return import_model((EXAMPLES / "digits_int8.tflite").read_bytes())


def chosen(model: ImportedModel, count: int) -> tuple[list[list[np.ndarray]], probing.Observer]:
    observer = probing.Observer()
    patterns = sample_inputs(model.signature, PATTERNS)
    inputs, outputs = probing.probe(model.module, MODE, model.signature, count, patterns, observer)
    assert len(inputs) == len(outputs) == count
    return inputs, observer


def test_a_cheap_model_gets_hundreds_of_inputs(digits: ImportedModel) -> None:
    assert 100 < probing.probe_count(digits.module, digits.signature) <= MOST_PROBES


def test_an_expensive_model_gets_only_the_patterns(digits: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_BUDGET_S", 1e-2)
    assert probing.probe_count(digits.module, digits.signature) == 0


def test_a_model_with_large_tensors_gets_fewer_inputs(digits: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    (given,), (made,) = digits.signature.inputs, digits.signature.outputs
    size_bytes = int(np.prod(given.shape)) + int(np.prod(made.shape))
    monkeypatch.setattr(probing, "_MOST_BYTES", 7 * size_bytes)
    assert probing.probe_count(digits.module, digits.signature) == 7


def test_the_same_model_gets_the_same_inputs(digits: ImportedModel) -> None:
    (one, _), (two, _) = chosen(digits, 24), chosen(digits, 24)
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first[0], second[0])


def test_every_entry_of_a_table_is_reached() -> None:
    model = import_model((EXAMPLES / "digits_uint8.tflite").read_bytes())
    _, observer = chosen(model, 64)
    report = observer.report()
    assert report["ties"] > 0
    assert 0 < report["low"] <= report["operators"]
    assert 0 < report["high"] <= report["operators"]
    assert f"{report['ties']:,} ties in {report['operators_with_ties']} of {report['operators']}" in report["text"]


def test_inputs_that_reach_new_cases_are_recognized(digits: ImportedModel) -> None:
    observer = probing.Observer()
    probing.probe(digits.module, MODE, digits.signature, 16, [], observer)
    assert max(observer.news) > 0
    again = dataclasses.replace(observer, news=[0] * 16)
    probing.probe(digits.module, MODE, digits.signature, 16, [], again)
    assert max(again.news) == 0


def test_chosen_inputs_survive_a_round_trip(digits: ImportedModel) -> None:
    inputs, _ = chosen(digits, 5)
    file = io.BytesIO()
    arrays: dict[str, Any] = dict(probing.arrays_of(inputs, inputs))
    np.savez_compressed(file, **arrays)
    read = read_probes(file.getvalue(), digits.signature)
    for one, other in zip(read, inputs, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    (spec,) = digits.signature.inputs
    other_signature = replace(digits.signature, inputs=(replace(spec, shape=(1, 2)),))
    with pytest.raises(ValueError, match="is not one of"):
        read_probes(file.getvalue(), other_signature)


def test_the_module_is_not_changed(digits: ImportedModel) -> None:
    before = tvm.ir.save_json(digits.module)
    chosen(digits, 8)
    assert tvm.ir.save_json(digits.module) == before
