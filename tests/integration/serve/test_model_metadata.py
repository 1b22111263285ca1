"""Labels and preprocessing from the command line or the model file are used in the prediction for a picture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.models.metadata import ModelMetadata
from service.core.models.signature import TensorSpec
from service.runtime.image import decode
from tests.support.compiled import EXAMPLES
from tests.support.data_plane import packed
from tests.support.serving import INT8, Served, environment
from tests.support.tflite_metadata import IMAGE, Described, labels_in, metadata_buffer, with_metadata
from tests.support.waiting import WORK_TIMEOUT_S

PICTURE = (EXAMPLES / "digits" / "7.png").read_bytes()
OF_FILE = "".join(f"from the file: {digit}\n" for digit in range(10))


def labelled(folder: Path, name: str = "labelled", mean: float = 127.5) -> Path:
    """Writes the example model with metadata, and returns its path."""
    metadata = metadata_buffer([Described(IMAGE, [mean], [127.5])], [labels_in()])
    path = folder / f"{name}.tflite"
    path.write_bytes(with_metadata((EXAMPLES / INT8).read_bytes(), metadata, {"labels.txt": OF_FILE}))
    return path


def push(served: Served, path: Path, *options: object) -> str:
    program = [sys.executable, "-m", "service.cli", "push", str(path), *map(str, options), "--server", served.url]
    pushed = subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert pushed.returncode == 0, pushed.stderr
    return pushed.stderr


def described(served: Served, name: str) -> dict[str, Any]:
    document: dict[str, Any] = served.client.get(f"/v2/models/{name}").json()
    return document


def answer(served: Served, name: str, entry: dict[str, Any], output: dict[str, Any], data: bytes) -> Sequence[Any]:
    about = described(served, name)
    size = {"name": about["inputs"][0]["name"], "parameters": {"binary_data_size": len(data)}}
    request = {"inputs": [entry | size], "outputs": [{"name": about["outputs"][0]["name"], "parameters": output}]}
    body, headers = packed(request, data)
    outputs = served.client.post(f"/v2/models/{name}/infer", content=body, headers=headers).json()["outputs"]
    data_: Sequence[Any] = outputs[0]["data"]
    return data_


def of_picture(served: Served, name: str, **output: Any) -> Sequence[Any]:
    framed = len(PICTURE).to_bytes(4, "little") + PICTURE
    return answer(served, name, {"datatype": "BYTES", "shape": [1]}, output, framed)


def best(served: Served, name: str) -> tuple[str, float]:
    """Returns the label of the most likely class, and its score."""
    (text,) = of_picture(served, name, classification=1, dequantize=True)
    score, _, label = text.split(":", 2)
    return label, float(score)


def test_pushed_labels_name_the_classes_of_a_picture(served: Served, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"the {digit}\n" for digit in range(10)))
    push(served, EXAMPLES / INT8, "--name", "pushed", "--labels", labels, "--mean", "0.5", "--std", "0.5")
    label, score = best(served, "pushed")
    assert label == "the 7"
    assert score > 0.5
    parameters = described(served, "pushed")["parameters"]
    assert (parameters["labels"][7], parameters["std"]) == ("the 7", [0.5])


def test_labels_in_the_file_name_the_classes_of_a_picture(served: Served, tmp_path: Path) -> None:
    push(served, labelled(tmp_path))
    label, score = best(served, "labelled")
    assert label == "from the file: 7"
    assert score > 0.5


def test_a_picture_is_normalized_according_to_the_file(served: Served, tmp_path: Path) -> None:
    push(served, labelled(tmp_path, "dim", mean=90.0))
    spec = TensorSpec.from_json(
        served.client.get("/api/v1/models/dim").json()["versions"][0]["facts"]["signature"]["inputs"][0]
    )
    tensor = decode(PICTURE, spec, ModelMetadata(mean=(90 / 255,), std=(0.5,)))
    assert not np.array_equal(tensor, decode(PICTURE, spec)), (
        "the normalization changes nothing, so the test would prove nothing"
    )
    entry = {"datatype": spec.datatype, "shape": list(spec.shape)}
    assert of_picture(served, "dim") == answer(served, "dim", entry, {}, tensor.tobytes())


def test_pushed_metadata_overrides_the_file(served: Served, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"mine: {digit}\n" for digit in range(10)))
    push(served, labelled(tmp_path, "mine"), "--labels", labels)
    assert best(served, "mine")[0] == "mine: 7"
    assert described(served, "mine")["parameters"]["mean"] == [0.5], "the push sets no mean, so the file's mean counts"


@pytest.mark.slow  # tests/unit/compiler/importers/tflite/file/test_metadata.py has such files
def test_a_file_with_damaged_labels_is_served_without_them(served: Served, tmp_path: Path) -> None:
    path = labelled(tmp_path, "damaged")
    path.write_bytes(path.read_bytes()[:-20])
    push(served, path)
    assert of_picture(served, "damaged", classification=1)[0].count(":") == 1, "only a score and a class"
    build = served.client.get("/api/v1/builds", params={"model": "damaged"}).json()["builds"][0]["id"]
    assert "labels in the file's metadata cannot be used" in served.client.get(f"/api/v1/builds/{build}/log").text
    (version,) = served.client.get("/api/v1/models/damaged").json()["versions"]
    assert "labels" in version["facts"]["notices"][0]
