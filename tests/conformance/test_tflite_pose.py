"""A network with the same last operators as MoveNet. The oracle is compared with LiteRT, and compiled code with the
oracle.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import XNNPACK
from service.core.target import TARGETS, detect_host
from service.core.verification.vectors import sample_inputs
from tests.support import litert
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.litert import MODES
from tests.support.selected import run_selected
from tests.support.tflite_pose import SIDE, pose_model

HERE = [target for target in TARGETS if target.runs_on(detect_host())]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("real_scores", [False, True])
def test_key_points_equal_litert(mode: str, real_scores: bool) -> None:
    for seed in range(4):
        assert_oracle_equals_litert(pose_model(seed, real_scores=real_scores), samples=4, numerics=mode)


def test_key_points_are_not_all_in_one_place() -> None:
    """If all key points were at one position, the previous test would prove nothing."""
    loaded = litert.interpreter(pose_model())
    (points,) = litert.run(loaded, litert.random_inputs(loaded, np.random.default_rng(0)))
    assert len({round(float(y * SIDE)) for y in points[0, 0, :, 0]}) > 2


@pytest.mark.skipif(not HERE, reason="no target runs here")
def test_compiled_key_points_equal_the_oracle(tmp_path: Path) -> None:
    imported = import_model(pose_model())
    sample = sample_inputs(imported.signature, 6, seed=5)[-1]
    selection, outputs = run_selected(imported.module, HERE[0], XNNPACK, sample, tmp_path)
    np.testing.assert_array_equal(outputs[0], oracle.run(imported.module, get_mode(XNNPACK), sample)[0])
    assert selection.layers
