"""One build of the float model runs any choice of types for its layers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from service.compiler.messages.observing import ObservedModel
from service.compiler.qnn.types import QuantizedType
from service.core.builds.build import Stage
from service.core.builds.quantization import Raised
from service.core.errors import InvalidInput
from service.core.settings import load_settings
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import Statistics, affine
from service.quantize.calibration.observing import CalibrationSession, Children
from service.quantize.quantization import Calibration, Options
from tests.support.float_networks import pictures, residual_network


class Silent:
    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


class CountingSession(CalibrationSession):
    builds = 0

    def build(self, model: bytes) -> ObservedModel:
        self.builds += 1
        return super().build(model)


@pytest.fixture
def session(tmp_path: Path) -> CountingSession:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return CountingSession(scratch, Children(load_settings({"build_nice": 0}), Silent(), {}))


@pytest.fixture
def data(tmp_path: Path) -> Data:
    np.savez(tmp_path / "x.npz", image=pictures(12))
    return Data(tmp_path / "x.npz")


def half(statistics: Statistics, storage: str) -> QuantizedType:
    """A user's own method, which cuts off half of the range."""
    return affine(statistics.low / 2, statistics.high / 2, storage)


@pytest.mark.slow  # ten seconds; tests/unit/quantize/program has its parts
def test_one_build_serves_rounds_and_searches_and_choices(session: CountingSession, data: Data) -> None:
    calibration = Calibration(residual_network(), session, data, Options(rounds=2), Raised.BFLOAT16)
    ranked = calibration.sensitivity(Options())
    curve = ranked.curve()
    assert (curve[0].raised, curve[-1].noise) == (0, math.inf)
    narrow = ranked.mixture(len(ranked.names), 0)
    assert len(narrow.bfloat16) > 1
    assert 30 < narrow.noise < math.inf
    choices = [Options(), Options(half), Options(kept=curve[1].kept), Options("power-of-two", storage="int8")]
    simulated = [calibration.simulate(options) for options in choices]
    assert session.builds == 1
    for options, point in zip(choices[:2], simulated[:2], strict=True):
        measured = calibration.measure(calibration.quantize(options))
        # Single values in the middle between two steps may be rounded differently, which matters in a small network.
        assert point.noise == pytest.approx(measured.outputs["scores"], abs=0.2)
    assert simulated[1].noise < simulated[0].noise - 10


def test_a_choice_in_bfloat16_needs_a_program_with_it(session: CountingSession, data: Data) -> None:
    calibration = Calibration(residual_network(), session, data, Options())
    name = next(name for name in calibration.observed.names if name.startswith("t"))
    with pytest.raises(InvalidInput, match="has no layers in bfloat16"):
        calibration.simulate(Options(bfloat16=[name]))
