"""Checks that every model of the test builders runs in LiteRT, with its reference and its default kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import litert, tflite_catalog, tflite_catalog_16x8

MODELS = tflite_catalog.MODELS | tflite_catalog_16x8.MODELS


@pytest.mark.parametrize("reference", [True, False], ids=["reference", "default"])
@pytest.mark.parametrize("name", MODELS)
def test_model_runs_in_litert(name: str, reference: bool) -> None:
    loaded = litert.interpreter(MODELS[name](), reference=reference)
    rng = np.random.default_rng(0)
    answers = [litert.run(loaded, litert.random_inputs(loaded, rng)) for _ in range(8)]
    for outputs in zip(*answers, strict=True):
        varied = len(np.unique(np.concatenate([output.reshape(-1) for output in outputs])))
        least = 1 if outputs[0].size == 1 else 2 if outputs[0].dtype == np.bool_ else 3
        assert varied >= least, "an output that hardly varies tests nothing"
