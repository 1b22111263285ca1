"""Quantization on a server, from a float model and calibration inputs to a served version; and invalid inputs."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from service.cli.app import app
from tests.support.float_networks import INPUT, SIZE, dense_network, pictures, residual_network
from tests.support.serving import Served, serving
from tests.support.tflite_float_network import tflite_residual_network
from tests.support.tflite_metadata import IMAGE, Described, metadata_buffer, with_metadata
from tests.support.waiting import WORK_TIMEOUT_S, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the float model `net`."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        query = {"name": "net", "mean": "0.5", "std": "0.25"}
        pushed = served.client.put("/api/v1/models", params=query, content=residual_network()).json()
        build = served.ended(pushed["id"])
        assert build["state"] == "succeeded", build
        yield served
        assert served.stop() == 0


def quantized(served: Served, content: bytes, **query: Any) -> dict[str, Any]:
    """Quantizes the float version or another one, and returns the finished build."""
    params = {"version": 1, **query}
    response = served.client.post("/api/v1/models/net/quantizations", params=params, content=content)
    assert response.status_code == 202, response.text
    return served.ended(response.json()["id"])


def arrays(**values: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def archive(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return file.getvalue()


def png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_a_float_model_becomes_a_served_quantized_version(net: Served) -> None:
    members = {f"{number}.png": png(number) for number in range(6)}
    members["labels.csv"] = "".join(f"{number}.png,{number % 2}\n" for number in range(6)).encode()
    build = quantized(net, archive(members), sensitivity=True, samples=5)
    assert build["state"] == "succeeded", build["error"]
    stages = [event.data["stage"] for event in net.events(build["id"]) if event.kind == "stage"]
    assert stages == ["fetch", "calibrate", "rank", "measure", "publish"]
    log = net.client.get(build["links"]["log"]).text
    assert log.count("builds a model to measure with") == 3
    quantization = net.client.get(build["links"]["quantization"]).json()
    report = quantization["report"]
    assert (quantization["version"], report["inputs"], report["accuracy"]["float"]["inputs"]) == (2, 5, 5)
    assert report["bytes"]["quantized"] == len(net.client.get(quantization["file"]).content)
    floats = [len(point["kept"]) for point in report["sensitivity"]["curve"] if not point["wide"]]
    assert floats == [0, 1, 2, 4, 7]

    def is_ready() -> bool:
        return bool(net.client.get("/api/v1/models/net/versions/2").json()["state"] == "ready")

    eventually(is_ready, WORK_TIMEOUT_S)
    facts = net.client.get("/api/v1/models/net/versions/2").json()["facts"]
    assert facts["weights"]["storage"] == ["int8"]
    inputs = [{"name": "image", "datatype": "FP32", "shape": list(INPUT), "data": pictures(1).ravel().tolist()}]
    assert net.client.post("/v2/models/net/versions/2/infer", json={"inputs": inputs}).status_code == 200


def test_a_float_tflite_model_becomes_a_version_that_replaces_it(net: Served) -> None:
    """The new version has the same input as the float model: name, shape, layout, and preprocessing of pictures."""
    metadata = metadata_buffer([Described(IMAGE, [127.5], [127.5])], [Described()])
    model = with_metadata(tflite_residual_network(), metadata)
    pushed = net.ended(net.client.put("/api/v1/models", params={"name": "lite"}, content=model).json()["id"])
    assert pushed["state"] == "succeeded", pushed
    facts = net.client.get("/api/v1/models/lite/versions/1").json()["facts"]
    assert any("octet quantize" in each for each in facts["notices"])
    content = archive({f"{number}.png": png(number) for number in range(4)})
    build = net.ended(net.client.post("/api/v1/models/lite/quantizations", content=content).json()["id"])
    assert build["state"] == "succeeded", build["error"]

    def is_ready() -> bool:
        return bool(net.client.get("/api/v1/models/lite/versions/2").json()["state"] == "ready")

    eventually(is_ready, WORK_TIMEOUT_S)
    image = np.ascontiguousarray(pictures(1).transpose(0, 2, 3, 1))
    inputs = [{"name": "image", "datatype": "FP32", "shape": list(image.shape), "data": image.ravel().tolist()}]
    scores = []
    for version in (1, 2):
        answer = net.client.post(f"/v2/models/lite/versions/{version}/infer", json={"inputs": inputs}).json()
        scores.append(np.array(answer["outputs"][0]["data"]))
    made = net.client.get("/api/v1/models/lite/versions/2").json()
    assert {name: made["metadata"][name] for name in ("mean", "std")} == {
        name: facts["metadata"][name] for name in ("mean", "std")
    }
    assert answer["outputs"][0]["name"] == "scores"
    assert scores[0].argmax() == scores[1].argmax()
    assert 0 < np.abs(scores[0] - scores[1]).max() < 0.2


_NAN = pictures(3)
_NAN[1, 0, 0, 0] = np.nan
_WRONG = {
    "NaN": (arrays(image=_NAN), "upload: input 1 of the calibration set has NaN or infinity in 'image'", "image"),
    "another shape": (arrays(image=np.zeros((2, 3, 8, 8), np.float32)), "the model takes [1, 3, 16, 16]", "image"),
    "another dtype": (
        arrays(image=np.zeros((2, *INPUT[1:]), np.uint8)),
        "is of uint8; the model takes float32",
        "image",
    ),
    "objects": (arrays(image=np.array([print, len], dtype=object)), "is of object", "image"),
    "nothing": (archive({}), "has 0 records", None),
    "no picture": (archive({"notes.txt": b"no picture"}), "upload has no inputs", None),
    "a damaged picture": (archive({"a.png": png(0)[:100]}), "upload: a.png: the picture", None),
    "names that lead elsewhere": (archive({"a.png": png(0), "../../b.png": png(1)}), "outside of its folder", None),
    "a zip bomb": (archive({"a.png": bytes(65 << 20)}), "a.png: it is larger than 64 MiB", None),
    "labels of other files": (archive({"a.png": png(0), "labels.csv": b"b.png,1"}), "'b.png' is not a picture", None),
    "a damaged archive": (b"PK" + bytes(100), "File is not a zip file", None),
}


@pytest.mark.parametrize("what", _WRONG)
def test_an_invalid_set_is_rejected_with_a_reason(net: Served, what: str) -> None:
    content, message, tensor = _WRONG[what]
    build = quantized(net, content)
    assert build["state"] == "failed"
    error = build["error"]
    assert (error["code"], error["stage"], error["tensor"]) in [
        ("invalid_input", "calibrate", tensor),
        ("invalid_tensor", "calibrate", tensor),
    ], error
    assert message in error["message"]
    assert "/scratch" not in error["message"], "no path of the server"
    assert "/blobs" not in error["message"]


def test_one_constant_image_is_enough(net: Served) -> None:
    build = quantized(net, arrays(image=np.zeros(INPUT, np.float32)), method="kl")
    assert build["state"] == "succeeded", build["error"]


def test_an_unknown_layer_cannot_be_kept_in_float(net: Served) -> None:
    build = quantized(net, arrays(image=pictures(1)), keep="nothing")
    assert build["error"]["message"] == "no operator makes nothing"


def test_a_quantized_model_cannot_be_quantized_again(net: Served) -> None:
    build = quantized(net, arrays(image=pictures(1)), version=2)
    assert build["error"]["code"] == "unsupported"
    assert build["error"]["message"] == "this model is quantized already"


@pytest.mark.parametrize("query", [{"dynamic": True}, {"weights": 4, "block": 16}])
def test_only_products_are_quantized_without_a_set(net: Served, query: dict[str, Any]) -> None:
    params = {"name": f"dense-{next(iter(query))}"}
    pushed = net.client.put("/api/v1/models", params=params, content=dense_network()).json()
    response = net.client.post(f"/api/v1/models/{pushed['model']}/quantizations", params=query)
    assert response.status_code == 202, response.text
    build = net.ended(response.json()["id"])
    assert build["state"] == "succeeded", build["error"]
    stages = [event.data["stage"] for event in net.events(build["id"]) if event.kind == "stage"]
    assert stages == ["fetch", "import", "publish"]
    quantization = net.client.get(build["links"]["quantization"]).json()
    report = quantization["report"]
    assert (quantization["version"], len(report["layers"]), report["weights"]) == (2, 3, query.get("weights"))
    assert report["bytes"]["quantized"] == len(net.client.get(quantization["file"]).content)

    def is_ready() -> bool:
        version = net.client.get(f"/api/v1/models/{pushed['model']}/versions/2").json()
        return bool(version["state"] == "ready")

    eventually(is_ready, WORK_TIMEOUT_S)


def test_without_a_set_an_invalid_model_is_rejected_too(net: Served) -> None:
    response = net.client.post("/api/v1/models/net/quantizations", params={"version": 2, "dynamic": True})
    error = net.ended(response.json()["id"])["error"]
    assert (error["code"], error["stage"]) == ("unsupported", "import")
    assert error["message"] == "this model is quantized already"


def test_a_quantization_can_be_canceled(net: Served) -> None:
    content = arrays(image=pictures(4000))
    query: dict[str, str | int] = {"version": 1, "method": "mse", "samples": 4000}
    build = net.client.post("/api/v1/models/net/quantizations", params=query, content=content).json()
    eventually(lambda: net.build(build["id"])["stage"] == "calibrate", WORK_TIMEOUT_S)
    net.client.post(f"/api/v1/builds/{build['id']}/cancel")
    assert net.ended(build["id"])["state"] == "canceled"


def test_a_server_quantizes_for_the_command(net: Served, tmp_path: Path) -> None:
    """The file equals the file that the command would write locally."""
    (tmp_path / "net.onnx").write_bytes(residual_network(seed=3))
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    for number in range(3):
        (folder / "deep" / f"{number}.png").write_bytes(png(number))
    labels = tmp_path / "labels.csv"
    labels.write_text("deep/0.png,1\ndeep/2.png,3\n")
    inputs = [
        "--data",
        str(folder),
        "--labels",
        str(labels),
        "--samples",
        "2",
        "--mean",
        "0.5",
        "--std",
        "0.5",
        "--json",
    ]
    command = ["quantize", str(tmp_path / "net.onnx"), *inputs, "-o"]
    remote = [str(tmp_path / "remote.onnx"), "--on-server", "--push", "theirs", "--server", net.url]
    result = CliRunner().invoke(app, [*command, *remote])
    document = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, document
    assert document["version"] == 2
    assert document["build"]["state"] == "succeeded"
    assert document["reports"]["numerics"]["verified"]
    assert document["accuracy"]["float"]["inputs"] == 1
    pushed = [str(tmp_path / "local.onnx"), "--push", "ours", "--server", net.url]
    result = CliRunner().invoke(app, [*command, *pushed])
    here = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, here
    assert here["pushed"]["build"]["state"] == "succeeded"
    assert (tmp_path / "local.onnx").read_bytes() == (tmp_path / "remote.onnx").read_bytes()
    assert document["accuracy"] == here["accuracy"]
    version = net.client.get("/api/v1/models/theirs/versions/2").json()
    assert version["metadata"] == {"labels": [], "mean": [0.5], "std": [0.5], "resize": None, "layout": None}


def test_a_server_quantizes_only_products_for_the_command(net: Served, tmp_path: Path) -> None:
    (tmp_path / "dense.onnx").write_bytes(dense_network(seed=5))
    command = ["quantize", str(tmp_path / "dense.onnx"), "--dynamic", "--json", "-o"]
    remote = [str(tmp_path / "remote.onnx"), "--on-server", "--push", "products", "--server", net.url]
    result = CliRunner().invoke(app, [*command, *remote])
    document = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, document
    assert document["version"] == 2
    assert document["reports"]["numerics"]["verified"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "local.onnx")])
    assert result.exit_code == 0, result.stdout
    assert (tmp_path / "local.onnx").read_bytes() == (tmp_path / "remote.onnx").read_bytes()
