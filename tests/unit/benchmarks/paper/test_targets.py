from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paper.targets import Example, checked, examples, is_weaker
from service.core.target import TARGETS, detect_host

FRAMEWORKS = ("TFLite", "ONNX", "PyTorch", "PyTorch, exported", "MXNet")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    return {example.framework: example for example in examples(tmp_path_factory.mktemp("examples"))}


@pytest.fixture
def example(found: dict[str, Example]) -> Example:
    return found["TFLite"]


def test_each_framework_has_an_example(found: dict[str, Example]) -> None:
    assert tuple(found) == FRAMEWORKS


@pytest.mark.parametrize(
    "framework", [FRAMEWORKS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in FRAMEWORKS[1:])]
)
def test_equal_outputs_are_reported_as_equal(framework: str, found: dict[str, Example], tmp_path: Path) -> None:
    values = checked(found[framework], detect_host().target, tmp_path / "artifact")
    assert values == {"state": "equal", "detail": ""}


@pytest.mark.slow
def test_the_share_of_equal_values_is_reported(example: Example, tmp_path: Path) -> None:
    outputs = [[output.copy() for output in sample] for sample in example.outputs]
    outputs[0][0].flat[0] ^= 1
    count = sum(output.size for sample in outputs for output in sample)
    state = checked(replace(example, outputs=outputs), detect_host().target, tmp_path / "artifact")["state"]
    assert state == f"{100 - 100 / count:.4g} % of values equal"


@pytest.mark.slow
def test_a_target_that_this_machine_lacks_is_only_compiled(example: Example, tmp_path: Path) -> None:
    host = detect_host()
    missing = [target for target in TARGETS if target.architecture == "x86_64" and target.missing_on(host)]
    if not missing:
        pytest.skip("this machine executes all x86-64 targets")
    found = checked(example, missing[0], tmp_path / "artifact")
    assert found["state"] == "compiled"
    assert found["detail"].startswith("this machine lacks ")


@pytest.mark.parametrize(
    ("state", "earlier", "weaker"),
    [
        ("compiled", "equal, emulated", True),
        ("compiled", "99.5 % of values equal", True),
        ("compiled", "compiled", False),
        ("compiled", "refused", False),
        ("equal", "equal, emulated", False),
        ("refused", "equal", False),  # a defect must not be hidden by an earlier result
    ],
)
def test_a_result_of_an_executed_model_stays_if_it_was_only_compiled(state: str, earlier: str, weaker: bool) -> None:
    assert is_weaker({"state": state}, {"state": earlier}) == weaker


def test_a_file_that_cannot_be_compiled_is_refused_with_the_reason(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"not a model")
    found = checked(replace(example, path=path), detect_host().target, tmp_path / "artifact")
    assert found["state"] == "refused"
    assert found["detail"]
