"""ONNX's backend tests. A fixed sample of the stored cases runs on compiled code; the slow test runs all cases, in the
environment of the peers that has the package `onnx`.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.home import CHECKOUT, default_home
from tests.conformance.onnx_backend.__main__ import RESULTS, run_all
from tests.conformance.onnx_backend.judge import Case, Verdict, judge
from tests.conformance.onnx_backend.outcomes import AS_REFERENCE, CLOSE, DIFFERS, EQUAL, PASSES
from tests.conformance.onnx_backend.table import HEADING, replaced, section

CASES = np.load(Path(__file__).parents[1] / "fixtures" / "onnx" / "node_cases.npz")
SAMPLE = (
    *("test_attention_3d", "test_clip_default_inbounds", "test_dequantizelinear_axis", "test_dynamicquantizelinear"),
    *("test_gather_elements_0", "test_qlinearmatmul_2D_uint8_float32", "test_quantizelinear"),
)


def _case(name: str) -> Case:
    inputs = [CASES[key] for key in sorted(CASES.files) if key.startswith(f"{name}.input")]
    outputs = [CASES[key] for key in sorted(CASES.files) if key.startswith(f"{name}.output")]
    models = [(CASES[f"{name}.model"].tobytes(), range(len(inputs)))]
    return Case(name, "node", [name], 0, (1e-4, 1e-5), models, inputs, outputs)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_stored_case_runs_on_compiled_code(name: str) -> None:
    assert judge(_case(name), compiled=True).outcome in (EQUAL, CLOSE)


def test_a_difference_is_found() -> None:
    case = _case("test_gather_elements_0")
    wrong = replace(case, outputs=[case.outputs[0] + 1])
    assert judge(wrong, compiled=False).outcome == AS_REFERENCE  # ONNX Runtime differs from these outputs too
    assert judge(replace(wrong, outputs=[case.outputs[0][:1]]), compiled=False).outcome in (DIFFERS, AS_REFERENCE)
    assert judge(replace(case, models=[(b"", [])]), compiled=False).outcome not in PASSES


def test_the_page_contains_the_recorded_results() -> None:
    results = json.loads(RESULTS.read_text())
    page = (RESULTS.parent / "conformance.md").read_text()
    day = page[page.index(HEADING) :].partition(" |\n\n")[0].rstrip(" |\n")[-10:]
    assert section(results, day).strip() in page
    assert replaced(page, section(results, day)).strip() == page.strip()


def test_failures_are_listed_with_their_reasons() -> None:
    entry = {"operator": "Add", "tensors": [], "reference": True, **vars(Verdict("failed", "boom #3 of [1, 2]"))}
    entry |= {"tensors": [], "reference": True}
    assert "boom of […] (1)" in section({"test_add": entry}, "2026-11-28")


@pytest.mark.slow
def test_no_case_of_the_suite_is_worse_than_recorded(tmp_path: Path) -> None:
    python = default_home().python("onnxruntime")
    if not python.exists():
        pytest.skip("no environment with the package onnx: run python -m benchmarks.setup_peers")
    collect = CHECKOUT / "tests" / "conformance" / "onnx_backend" / "collect.py"
    subprocess.run([str(python), "-W", "ignore", str(collect), str(tmp_path)], check=True, capture_output=True)
    recorded = json.loads(RESULTS.read_text())
    results = run_all(tmp_path, compiled=True)
    passed = {name for name, entry in recorded.items() if entry["outcome"] in PASSES}
    assert {name: results[name] for name in passed if results[name]["outcome"] not in PASSES} == {}
