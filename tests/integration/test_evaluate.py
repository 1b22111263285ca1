"""`octet evaluate` and `octet.evaluate` on real models: a file, a folder and a served model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import octet
from service.cli.app import app
from tests.support.compiled import EXAMPLES
from tests.support.serving import serving
from tests.support.shared_data import require_shared_data

MODEL, DIGITS = EXAMPLES / "digits_int8.tflite", EXAMPLES / "digits"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> octet.Artifact:
    return octet.compile(MODEL, tmp_path_factory.mktemp("compiled") / "digits")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of the ten digits. That of 7.png is wrong on purpose."""
    path = tmp_path_factory.mktemp("labels") / "labels.csv"
    path.write_text("file,class\n" + "".join(f"{digit}.png,{4 if digit == 7 else digit}\n" for digit in range(10)))
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("data")) as served:
        yield served.url


def run_evaluate(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_a_file_is_compiled_and_compared(labels: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    page = tmp_path / "page.html"
    status, found = run_evaluate(
        MODEL, "--data", DIGITS, "--labels", labels, "--against", "litert", "--report", page, "--classes",
        EXAMPLES / "labels.txt",
    )  # fmt: skip
    assert status == 0, found
    assert found["metrics"]["top1"]["value"] == 0.9
    assert found["metrics"]["top5"]["inputs"] == 10
    assert found["metrics"]["equal_outputs"]["value"] == found["metrics"]["same_top1"]["value"] == 1
    assert found["reference"]["title"].startswith("LiteRT")
    assert found["reference"]["metrics"]["top1"] == found["metrics"]["top1"]
    assert (found["reference"]["values"], found["reference"]["equal"]) == (100, 100)
    (case,) = found["cases"]
    assert (case["input"], case["label"], case["classes"][0], case["equal"]) == ("7.png", "4", 7, True)
    assert "7.png" in page.read_text()
    assert "data:image/jpeg;base64" in page.read_text()


def test_a_folder_needs_the_file_that_it_was_compiled_from(
    compiled: octet.Artifact, labels: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    data = "--data", DIGITS, "--labels", labels
    status, found = run_evaluate(compiled.path, *data)
    assert (status, found["artifact"], found["reference"]) == (0, compiled.digest, None)
    _, refused = run_evaluate(compiled.path, *data, "--against", "litert")
    assert refused["error"]["hint"] == "pass it as --source FILE"
    _, refused = run_evaluate(compiled.path, *data, "--against", "litert", "--source", EXAMPLES / "digits_uint8.tflite")
    assert "is not the file that the artifact was compiled from" in refused["error"]["message"]
    status, found = run_evaluate(compiled.path, *data, "--against", "litert", "--source", MODEL)
    assert found["metrics"]["equal_outputs"]["value"] == 1


def test_a_users_function_scores_other_tasks(compiled: octet.Artifact, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(
        "def score(name, outputs, label):\n"
        "    (scores,) = outputs.values()\n"
        "    return {'odd': float(scores.argmax() % 2), 'labelled': float(label is not None)}\n"
    )
    (tmp_path / "labels.csv").write_text("0.png,any text\n")
    status, found = run_evaluate(
        compiled.path, "--data", DIGITS, "--score", tmp_path / "score.py", "--labels", tmp_path / "labels.csv",
        "--show", 3,
    )  # fmt: skip
    assert status == 0, found
    assert found["metrics"]["odd"]["value"] == 0.5
    assert found["metrics"]["labelled"]["value"] == 0.1
    assert [case["score"] for case in found["cases"]] == [0.0] * 3


def test_there_must_be_something_to_compare_with(compiled: octet.Artifact) -> None:
    status, found = run_evaluate(compiled.path, "--data", DIGITS)
    assert (status, found["error"]["hint"]) == (1, "pass --labels, --against or --score")


def test_a_picture_that_cannot_be_read_is_named(compiled: octet.Artifact, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    (tmp_path / "labels.csv").write_text("a.png,1\n")
    _, found = run_evaluate(compiled.path, "--data", tmp_path, "--labels", tmp_path / "labels.csv")
    assert "a.png: the data is neither a JPEG nor a PNG" in found["error"]["message"]


def test_a_served_model(url: str, labels: Path) -> None:
    with octet.Client(url) as client:
        build = client.push(MODEL, "digits")
    status, found = run_evaluate("digits", "--data", DIGITS, "--labels", labels, "--server", url)
    assert status == 0, found
    assert (found["model"], found["artifact"]) == ("digits version 1", build.artifact)
    assert found["metrics"]["top1"]["value"] == 0.9
    _, refused = run_evaluate("digits:9", "--data", DIGITS, "--labels", labels, "--server", url)
    assert refused["error"]["message"] == "'digits' has no version that could be evaluated"


class TestInPython:
    def test_arrays_and_a_function(self, compiled: octet.Artifact, tmp_path: Path) -> None:
        pixels = [np.asarray(Image.open(DIGITS / f"{digit}.png")).astype(np.int16) - 128 for digit in range(10)]
        np.save(tmp_path / "x.npy", np.array(pixels, np.int8).reshape(10, 16, 16, 1))
        (tmp_path / "labels.csv").write_text("\n".join(map(str, range(10))))
        progress: list[tuple[str, float]] = []
        found = octet.evaluate(
            compiled, tmp_path / "x.npy", tmp_path / "labels.csv", on_progress=lambda *each: progress.append(each)
        )
        top1 = found.metrics["top1"]
        assert (top1.value, top1.high, top1.inputs) == (1.0, 1.0, 10)
        assert (found.artifact, found.reference, list(found.disagreements)) == (compiled.digest, None, [])
        assert progress[-1] == ("octet", 1.0)
        assert repr(found).endswith("on 10 inputs: top1 1.000 (0.722 to 1.000), top5 1.000 (0.722 to 1.000)>")

        def score(name: str, outputs: Mapping[str, Any], label: str | None) -> float:
            return float(label or 0) + len(name)

        again = octet.evaluate(compiled, [pixels[digit].reshape(16, 16, 1) for digit in range(10)], range(10))
        assert again.metrics == found.metrics
        other = octet.evaluate(compiled, tmp_path / "x.npy", tmp_path / "labels.csv", score=score, combine=sum)
        assert other.metrics["score"].value == sum(range(10)) + 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_published_network_on_photographs(tmp_path: Path) -> None:
    """The first 16 inputs are stored after the preprocessing of the paper, with LiteRT's outputs for them."""
    root = require_shared_data()
    name = "mobilenet_v1_0.25_128_quant"
    with np.load(root / "expected" / f"{name}.npz") as expected:
        np.save(tmp_path / "x.npy", expected["input16"])
        labels, outputs = expected["label_index"][:16], expected["out_ref"][:16]
    (tmp_path / "labels.csv").write_text("\n".join(map(str, labels)))
    found = octet.evaluate(
        root / "models" / "tflite" / f"{name}.tflite", tmp_path / "x.npy", tmp_path / "labels.csv", against="litert"
    )
    assert found.metrics["top1"].value == np.mean(outputs.argmax(1) == labels)
    assert found.metrics["equal_outputs"].value == 1
    assert found.largest_difference == 0
