"""Tests one model of each format: compiles, verifies and serves it, and compares a response with the framework's own.

`make check` runs this file: within a minute it shows whether the tree is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.builds.numerics import FBGEMM
from service.core.models.arrays import Array
from tests.support import mxnet_models, torchscript
from tests.support.compiled import expected
from tests.support.data_plane import as_json
from tests.support.serving import INT8, Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

_FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without models."""
    with serving(tmp_path_factory.mktemp("smoke")) as served:
        yield served
        assert served.stop() == 0


def push(served: Served, name: str, content: bytes, **query: Any) -> None:
    """Pushes a model, and returns when it is built, verified and ready."""
    response = served.client.put("/api/v1/models", params={"name": name, **query}, content=content)
    assert response.status_code in (200, 202), response.text
    build = served.ended(response.json()["id"])
    assert build["state"] == "succeeded", build
    eventually(lambda: served.client.get(f"/v2/models/{name}/ready").is_success, WORK_TIMEOUT_S)


def predict(served: Served, name: str, value: Array) -> Array:
    """Returns the first output for `value`, as a flat array."""
    spec = served.client.get(f"/v2/models/{name}").json()["inputs"][0]
    response = served.client.post(f"/v2/models/{name}/infer", json=as_json(value, spec["name"]))
    assert response.status_code == 200, response.text
    output: Array = np.array(response.json()["outputs"][0]["data"])
    return output


def test_tflite(served: Served) -> None:
    build = served.ended(served.push(INT8)["id"])
    assert build["state"] == "succeeded", build
    eventually(lambda: served.client.get("/v2/models/digits/ready").is_success, WORK_TIMEOUT_S)
    assert [served.label(digit) for digit in range(10)] == expected(INT8).argmax(axis=1).tolist()


def test_onnx(served: Served) -> None:
    case = "test_qlinearmatmul_2D_uint8_float32"
    with np.load(_FIXTURES / "onnx" / "node_cases.npz") as cases:
        content, value, output = (cases[f"{case}.{part}"] for part in ("model", "input0", "output0"))
    push(served, "onnx", content.tobytes())
    assert predict(served, "onnx", value).tolist() == output.reshape(-1).tolist()


def test_torch(served: Served) -> None:
    path = torchscript.FOLDER / "residual.pt"
    inputs, outputs = torchscript.answers(path, "fbgemm")
    shape = ",".join(map(str, inputs[0].shape))
    push(served, "torch", path.read_bytes(), input_shape=shape, numerics=FBGEMM)
    assert predict(served, "torch", inputs[0]).astype(np.float32).tolist() == outputs[0][0].reshape(-1).tolist()


def test_mxnet(served: Served) -> None:
    inputs, outputs = mxnet_models.answers_of("sg_inverted")
    push(served, "mxnet", mxnet_models.packed("sg_inverted"))
    assert predict(served, "mxnet", inputs[0]).astype(np.float32).tolist() == outputs[0].reshape(-1).tolist()
