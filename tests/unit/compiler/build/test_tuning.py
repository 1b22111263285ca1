"""Tuning with its real child processes. The promoted artifact is verified and was faster than the plain one in the
comparison, even if the measured times vary.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service import runtime
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.tile_store import TileStore
from service.compiler.build.tuning import _Tuning, build_artifact
from service.compiler.messages.checking import RACE, TimeResult
from service.compiler.messages.role import Role
from service.core.artifacts.artifact import Report
from service.core.builds.build import Stage
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.builds.options import with_tuning
from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.provenance import Provenance
from service.core.settings import Settings
from service.core.target import detect_host, parse_target

INT8 = Path(__file__).parents[4] / "examples" / "digits_int8.tflite"
pytestmark = pytest.mark.skipif(detect_host().best is None, reason="no target of ours runs here")


class Recorder:
    def __init__(self) -> None:
        self.stages: set[Stage] = set()
        self.lines: list[str] = []

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self.stages.add(stage)

    def log(self, line: str) -> None:
        self.lines.append(line)


def tune(folder: Path, progress: Recorder, options: dict[str, Any]) -> tuple[OciLayout, Digest]:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    layout = OciLayout(folder / "store")
    request = CompileRequest(INT8, digest_of_file(INT8), parse_target("host"), LITERT_REFERENCE, options)
    return layout, build_artifact(request, layout, scratch, progress, Settings(data_dir=folder.parent / "data"))


@pytest.mark.parametrize(
    ("times_as_fast", "promoted"), [(1.5, True), pytest.param(1.01, False, marks=pytest.mark.slow)]
)
def test_the_faster_artifact_is_promoted(
    times_as_fast: float, promoted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are replaced: the second tile of each layer is the fastest, and the comparison with the plain artifact
    has the given result.
    """
    measure = _Tuning._measure

    def measured(self: _Tuning, role: Role[Any, Any], models: Any, seconds: float) -> Any:
        result = measure(self, role, models, 0.01)
        if role == RACE:
            return replace(result, times_as_fast=times_as_fast)
        return TimeResult(tuple(dict.fromkeys(each, 2.0 - index) for index, each in enumerate(result.seconds)))

    monkeypatch.setattr(_Tuning, "_measure", measured)
    plain_layout, plain = tune(tmp_path / "plain", Recorder(), {})
    progress = Recorder()
    layout, digest = tune(tmp_path / "tuned", progress, with_tuning({}, 1.0))
    assert (digest != plain) is promoted
    assert progress.stages == {Stage.TUNE}
    assert progress.lines[-1].startswith("promoted" if promoted else "no gain")
    assert json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["verified"] is True
    provenance = Provenance.from_bytes(layout.attached(digest, Report.PROVENANCE) or b"", digest)
    tiles = provenance.tiles
    assert bool(tiles) is promoted
    assert (provenance.tuning_log == digest_of_json(tiles)) is promoted
    known = TileStore(tmp_path / "data" / "tiles", detect_host().model_name).measured(tiles)
    assert {key: list(tile) for key, tile in known.items()} == tiles
    model, reference = runtime.load(layout, digest), runtime.load(plain_layout, plain)
    x = np.random.default_rng(0).integers(-128, 128, model.signature.inputs[0].shape).astype(np.int8)
    np.testing.assert_array_equal(model(x), reference(x))


@pytest.mark.slow
def test_measured_layers_are_not_measured_again(tmp_path: Path) -> None:
    tune(tmp_path / "first", Recorder(), with_tuning({}, 1.0))
    progress = Recorder()
    tune(tmp_path / "second", progress, with_tuning({}, 1.0))
    counted = next(line for line in progress.lines if "measured before" in line)
    kinds, known = (int(word) for word in counted.split() if word.isdecimal())
    assert kinds == known > 0
    assert not any("tried for each" in line for line in progress.lines)
