"""Tests of the profile of a compiled sample: it contains every call once, in order, and replaying the calls computes
the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from service import runtime
from service.cache import OciLayout
from service.compiler.lowering.call_plan import PLAIN_PREFIX
from service.core.artifacts.artifact import Report
from service.core.artifacts.explanation import build_explanation
from service.core.target import detect_host
from service.runtime.profile import Profile, profile
from tests.support.compiled import compile_sample


@dataclass(frozen=True)
class Profiled:
    model: runtime.Model
    coverage: dict[str, Any]
    profile: Profile


@pytest.fixture(scope="module", params=["digits_int8.tflite", "digits_uint8.tflite"])
def profiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    layout = OciLayout(folder / "store")
    digest = compile_sample(request.param, layout, folder / "scratch")
    model = runtime.load(layout, digest)
    coverage = json.loads(layout.attached(digest, Report.COVERAGE) or b"")
    return Profiled(model, coverage, profile(model, peak=coverage["kernels"]["peak"], seconds=0.05))


def test_every_kernel_of_the_coverage_report_is_called_once_and_in_order(profiled: Profiled) -> None:
    kernels = [call.symbol for call in profiled.profile.calls if not call.symbol.startswith(PLAIN_PREFIX)]
    assert kernels == [layer["symbol"] for layer in profiled.coverage["kernels"]["layers"]]


def test_every_call_takes_time(profiled: Profiled) -> None:
    assert all(call.seconds > 0 for call in profiled.profile.calls)


def test_the_multiplications_of_the_layers_add_up_to_the_models(profiled: Profiled) -> None:
    explanation = build_explanation(profiled.coverage, profiled.profile.to_json())
    assert explanation.macs == profiled.coverage["macs"] > 0
    calls = [call for layer in explanation.layers for call in layer.calls]
    assert calls == list(profiled.profile.calls)


def test_percentages_are_rates_of_the_peak(profiled: Profiled) -> None:
    if profiled.coverage["kernels"]["peak"] is None:
        pytest.skip("no kernels here, and no peak")
    document = build_explanation(profiled.coverage, profiled.profile.to_json()).to_json()
    peak = profiled.profile.peak_macs_per_s
    assert peak
    measured = [layer for layer in (*document["layers"], document) if layer["macs"]]
    assert measured
    for layer in measured:
        assert layer["macs_per_s"] == pytest.approx(layer["macs"] / layer["seconds"])
        assert layer["peak_percent"] == pytest.approx(100 * layer["macs_per_s"] / peak)


def test_a_profile_contains_the_machine_and_the_rounds(profiled: Profiled) -> None:
    document = profiled.profile.to_json()
    assert document["machine"] == detect_host().model_name
    assert document["threads"] >= 1
    assert document["rounds"] >= 5
    assert document["model_seconds"] >= document["least_model_seconds"] > 0
    assert json.loads(json.dumps(document)) == document


def test_an_artifact_without_a_peak_loop_has_no_peak(profiled: Profiled) -> None:
    taken = profile(profiled.model, seconds=0)
    assert taken.peak_macs_per_s is None
    assert len(taken.calls) == len(profiled.profile.calls)
