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
from tests.support.signing import needs_signatures, write_pair

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


def run(*arguments: object, status: int = 0) -> dict[str, Any]:
    """Runs a command, and returns its result as JSON."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == status, result.output
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return document


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


def test_labels_are_checked_before_inputs_are_computed(compiled: octet.Artifact, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("3.png,3\n7.png,10\n")
    result = CliRunner().invoke(
        app, ["evaluate", str(compiled.path), "--data", str(DIGITS), "--labels", str(tmp_path / "labels.csv")]
    )
    assert result.exit_code == 1
    assert "7.png: the label 10 is not one of the model's 10 classes" in " ".join(result.output.split())
    assert "has computed" not in result.output


def test_there_must_be_something_to_compare_with(compiled: octet.Artifact) -> None:
    status, found = run_evaluate(compiled.path, "--data", DIGITS)
    assert (status, found["error"]["hint"]) == (1, "pass --labels, --against or --score")


def test_a_picture_that_cannot_be_read_is_named(compiled: octet.Artifact, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    (tmp_path / "labels.csv").write_text("a.png,1\n")
    _, found = run_evaluate(compiled.path, "--data", tmp_path, "--labels", tmp_path / "labels.csv")
    assert "a.png: the data is not a picture in a supported format" in found["error"]["message"]


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
        for labels in (range(5), [0] * 12):
            with pytest.raises(octet.errors.InvalidInput, match=f"there are {len(labels)} labels for 10 inputs"):
                octet.evaluate(compiled, tmp_path / "x.npy", labels)
        assert octet.evaluate(compiled, tmp_path / "x.npy", range(10), samples=4).inputs == 4
        other = octet.evaluate(compiled, tmp_path / "x.npy", tmp_path / "labels.csv", score=score, combine=sum)
        assert other.metrics["score"].value == sum(range(10)) + 10


class TestScores:
    """Scores that are attached to artifacts, and required by promotions."""

    def test_a_file_has_no_artifact_to_attach_a_score_to(self, labels: Path) -> None:
        status, found = run_evaluate(MODEL, "--data", DIGITS, "--labels", labels, "--attach")
        assert (status, found["error"]["code"]) == (1, "invalid_input")
        assert "the score cannot be attached" in found["error"]["message"]

    def test_a_score_travels_with_a_folder(self, url: str, labels: Path, tmp_path: Path) -> None:
        compiled = octet.compile(MODEL, tmp_path / "digits", target="x86-64-v3")
        found = octet.evaluate(compiled, DIGITS, labels, attach=True)
        report = run("verify", compiled.path, "--no-run")["score"]
        assert (report["metrics"]["top1"]["value"], report["signed_by"]) == (0.9, None)
        assert report["data_digest"] == found.data_digest
        run("push", compiled.path, "--name", "travelled", "--server", url)
        refused = run("promote", "travelled:1", "--least", "top1=0.91", "--server", url, status=1)
        assert refused["error"]["code"] == "gate_not_passed"
        assert run("promote", "travelled:1", "--least", "top1=0.9", "--server", url)["version"] == 1
        with octet.Client(url) as client:
            with pytest.raises(octet.errors.GateNotPassed, match="its score has no equal_outputs"):
                client.promote("travelled", 1, least={"equal_outputs": 1.0})
            client.attach_score(octet.evaluate(compiled, DIGITS, {f"{digit}.png": digit for digit in range(10)}))
            client.promote("travelled", 1, least={"top1": 1.0})

    @pytest.mark.slow
    @needs_signatures
    def test_a_server_that_trusts_keys_counts_only_signed_scores(
        self, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The settings of this server require half of the digits to be right, and LiteRT's outputs for all of them."""
        pytest.importorskip("ai_edge_litert")
        key, public = write_pair(tmp_path)
        config = tmp_path / "octet.toml"
        config.write_text("[models.digits.promote_least]\ntop1 = 0.5\nequal_outputs = 1\n")
        with serving(tmp_path, config=config, signing_key=key, trusted_keys=public) as served:
            server = "--server", served.url
            assert served.ended(served.push()["id"])["state"] == "succeeded"
            data = "digits:1", "--data", DIGITS, "--labels", labels, "--against", "litert", "--source", MODEL, *server
            assert "has no score" in run("promote", "digits:1", *server, status=1)["error"]["message"]
            refused = run("evaluate", *data, "--attach", status=1)["error"]
            assert (refused["code"], "is not signed" in refused["message"]) == ("forbidden", True)
            monkeypatch.setenv("OCTET_SIGNING_KEY", str(key))
            found = run("evaluate", *data, "--attach")
            assert found["metrics"]["equal_outputs"]["value"] == 1
            refused = run("promote", "digits:1", "--least", "top1.low=0.7", *server, status=1)["error"]
            assert "top1.low is 0.5958" in refused["message"]
            assert run("promote", "digits:1", *server)["version"] == 1
            monkeypatch.setenv("OCTET_TRUSTED_KEYS", str(public))
            assert run("verify", found["artifact"], "--no-run", *server)["score"]["signed_by"]["name"] == "octet.pub"
            assert served.stop() == 0


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
