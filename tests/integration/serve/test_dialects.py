"""A server whose operator configured dialects, and one without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import dialects
from tests.support.serving import Served, serving

pytestmark = pytest.mark.slow
EVERY_INT8 = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with Softsign and the JSON format."""
    files = os.pathsep.join(map(str, (dialects.SOFTSIGN, dialects.JSON_NETWORK)))
    with serving(tmp_path_factory.mktemp("served"), dialects=files) as served:
        yield served
        assert served.stop() == 0


def pushed(served: Served, name: str, content: bytes) -> dict[str, Any]:
    response = served.client.put("/api/v1/models", params={"name": name}, content=content)
    assert response.status_code in (200, 202), response.text
    return served.ended(response.json()["id"])


def answer(served: Served, name: str, x: np.ndarray[Any, Any]) -> list[float]:
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "INT8", "data": x.ravel().tolist()}
    response = served.client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]})
    assert response.status_code == 200, response.text
    data: list[float] = response.json()["outputs"][0]["data"]
    return data


def test_a_model_that_needs_a_dialect_is_served(extended: Served) -> None:
    build = pushed(extended, "curve", dialects.tflite_softsign())
    assert build["state"] == "succeeded", build
    real = (EVERY_INT8.astype(np.float32) - 3) * np.float32(0.05)
    expected = np.clip(np.rint(real / (1 + np.abs(real)) * 64) - 7, -128, 127)
    assert answer(extended, "curve", EVERY_INT8) == expected.ravel().tolist()


def test_a_file_of_a_dialects_format_is_served(extended: Served) -> None:
    build = pushed(extended, "network", dialects.JSON_FILE.encode())
    assert build["state"] == "succeeded", build
    assert answer(extended, "network", np.array([[5, 8]], np.int8)) == [-1, 17, 25]


def test_an_upload_cannot_choose_a_dialect(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        build = pushed(served, "curve", dialects.tflite_softsign())
        assert build["state"] == "failed", build
        assert "CUSTOM(FlexSoftsign)" in str(build["error"])
        query = {"name": "curve", "dialect": str(dialects.SOFTSIGN), "dialects": str(dialects.SOFTSIGN)}
        response = served.client.put("/api/v1/models", params=query, content=dialects.tflite_softsign())
        assert response.status_code >= 400, response.text
        refused = served.client.put("/api/v1/models", params={"name": "network"}, content=dialects.JSON_FILE.encode())
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_format")
