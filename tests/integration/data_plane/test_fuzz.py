"""Requests are damaged at random. Each gets a result or a 4xx status with `error`, never a 5xx status."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np
import pytest

from tests.support.data_plane import as_binary, connect
from tests.support.runners import affine
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

ODD: list[Any] = [None, True, -1, 0, 1.5, 2**64, "", "x", "\x00", [], {}, [[]], [None], {"name": 0}, "FP32", "BYTES"]
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "x": np.ones((1, 4), np.float32),
    "a": np.ones((1, 4), np.int8),
    "b": np.ones((1, 4), np.int64),
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns each container in a document, paired with each of its keys or indices."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [position for key in keys for position in places(value[key])]


def damaged(generator: random.Random) -> tuple[bytes, dict[str, str]]:
    """Returns a valid request that was damaged: some members are replaced or removed, or some bytes are changed or cut
    off.
    """
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    body, headers = as_binary(ARRAYS, {"id": "1", "parameters": {"binary_data_output": True}}, outputs)
    length = int(headers["Inference-Header-Content-Length"])
    document, blob = json.loads(body[:length]), body[length:]
    if generator.random() < 0.7:
        for _ in range(generator.randint(1, 2)):
            container, key = generator.choice(places(document))
            if isinstance(container, dict) and generator.random() < 0.3:
                del container[key]
            else:
                container[key] = copy.deepcopy(generator.choice(ODD))
        text = json.dumps(document).encode()
        return text + blob, {"Inference-Header-Content-Length": str(len(text))}
    changed = bytearray(body)
    for _ in range(generator.randint(1, 3)):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed[: generator.choice([len(changed), generator.randrange(len(changed))])]), headers


async def test_damaged_requests_cause_no_server_error() -> None:
    tables, generator = Tables(), random.Random(0)
    tables.model("affine", affine)
    seen = set()
    async with connect(tables) as client:
        for _ in range(1500):
            body, headers = damaged(generator)
            response = await client.post("/v2/models/affine/infer", content=body, headers=headers)
            seen.add(response.status_code)
            if response.status_code != 200:
                assert 400 <= response.status_code < 500, (response.text, body)
                assert response.json()["error"]
    assert {200, 400} <= seen  # some damaged requests succeeded, and some were refused
