"""Answers by `Accept-Encoding`."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from service.api.oip.coding import WINDOW_BITS, preferred
from tests.support.data_plane import as_binary, connect, sample_tables

pytestmark = pytest.mark.anyio

IMAGE = np.random.default_rng(0).integers(0, 4, (1, 224, 224, 3), np.uint8)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", "gzip"),
        (b"deflate", "deflate"),
        (b"deflate, gzip;q=0.5", "gzip"),
        (b"br, GZIP ; q=1.0", "gzip"),
        (b"gzip;q=0, deflate", "deflate"),
        (b"gzip; q=0.000", ""),
        (b"identity", ""),
        (b"br", ""),
        (b"", ""),
        (b";;,=q", ""),
    ],
)
def test_what_the_client_prefers(accepted: bytes, coding: str) -> None:
    assert preferred(accepted) == coding


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_the_length_of_the_json_is_that_of_the_inflated_one(coding: str) -> None:
    body, headers = as_binary({"x": IMAGE}, {"parameters": {"binary_data_output": True}})
    async with (
        connect(sample_tables()) as client,
        client.stream(
            "POST", "/v2/models/large/infer", content=body, headers={**headers, "Accept-Encoding": coding}
        ) as response,
    ):
        raw = b"".join([chunk async for chunk in response.aiter_raw()])
    assert response.headers["content-encoding"] == coding
    assert response.headers["vary"] == "accept-encoding"
    assert int(response.headers["content-length"]) == len(raw) < IMAGE.nbytes
    inflated = zlib.decompress(raw, WINDOW_BITS[coding])
    length = int(response.headers["inference-header-content-length"])
    assert json.loads(inflated[:length])["outputs"][0]["name"] == "y"
    assert inflated[length:] == IMAGE.tobytes()


async def test_nothing_is_compressed_that_is_short_or_not_asked_for() -> None:
    async with connect(sample_tables()) as client:
        for model, array, accepted in (("int8", np.zeros((1, 4), np.int8), "gzip"), ("large", IMAGE, "identity")):
            body, headers = as_binary({"x": array}, {"parameters": {"binary_data_output": True}})
            response = await client.post(
                f"/v2/models/{model}/infer", content=body, headers={**headers, "Accept-Encoding": accepted}
            )
            assert response.status_code == 200
            assert "content-encoding" not in response.headers
