"""Responses are compressed according to `Accept-Encoding`; the test compares every byte."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from tests.support.data_plane import as_binary, connect, sample_tables

pytestmark = pytest.mark.anyio

IMAGE = np.random.default_rng(0).integers(0, 4, (1, 224, 224, 3), np.uint8)
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def test_a_response_has_the_coding_that_the_client_prefers() -> None:
    body, headers = as_binary({"x": IMAGE}, {"parameters": {"binary_data_output": True}})
    preferred = {
        "gzip": "gzip",
        "deflate": "deflate",
        "deflate, gzip;q=0.5": "gzip",
        "br, GZIP ; q=1.0": "gzip",
        "gzip;q=0, deflate": "deflate",
        "gzip; q=0.000": None,
        "identity": None,
        "br": None,
        "": None,
        ";;,=q": None,
    }
    async with connect(sample_tables()) as client:
        for accepted, coding in preferred.items():
            headers_sent = {**headers, "Accept-Encoding": accepted}
            async with client.stream("POST", "/v2/models/large/infer", content=body, headers=headers_sent) as response:
                assert response.headers.get("content-encoding") == coding, accepted


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_the_json_length_is_that_of_the_uncompressed_body(coding: str) -> None:
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


async def test_a_short_response_is_not_compressed() -> None:
    body, headers = as_binary({"x": np.zeros((1, 4), np.int8)}, {"parameters": {"binary_data_output": True}})
    async with connect(sample_tables()) as client:
        response = await client.post(
            "/v2/models/int8/infer", content=body, headers={**headers, "Accept-Encoding": "gzip"}
        )
    assert response.status_code == 200
    assert "content-encoding" not in response.headers
