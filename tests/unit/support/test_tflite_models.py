"""Every model that the test builders write loads and runs in LiteRT, with its reference kernels and by default."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import litert, tflite_catalog, tflite_catalog_16x8

MODELS = tflite_catalog.MODELS | tflite_catalog_16x8.MODELS


@pytest.mark.parametrize("reference", [True, False], ids=["reference", "default"])
@pytest.mark.parametrize("name", MODELS)
def test_model_runs_in_litert(name: str, reference: bool) -> None:
    loaded = litert.interpreter(MODELS[name](), reference=reference)
    outputs = litert.run(loaded, litert.random_inputs(loaded, np.random.default_rng(0)))
    assert all(len(np.unique(output)) > 3 for output in outputs), "an output that hardly varies tests nothing"
