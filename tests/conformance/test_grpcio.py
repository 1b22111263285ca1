"""Parts of gRPC's protocol other than the messages, tested with gRPC's own client: trailers, and compression on the
wire.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from grpc.aio import AioRpcError, Channel, insecure_channel

from service.api.grpc import inference_pb2 as pb
from tests.support.data_plane import DataPlane
from tests.support.relay import Relay, relay
from tests.support.runners import identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

LARGE, SMALL = 1 << 16, 64
SERVICE = "/inference.GRPCInferenceService"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def plane() -> AsyncIterator[DataPlane]:
    tables = Tables()
    tables.model("large", lambda: identity("UINT8", 1, LARGE))
    tables.model("small", lambda: identity("UINT8", 1, SMALL))
    plane = DataPlane(tables)
    async with plane.lifespan():
        yield plane


@pytest.fixture
def relayed(plane: DataPlane) -> Iterator[Relay]:
    with relay(plane.grpc) as found:
        yield found


def request(model: str) -> bytes:
    """Returns a request whose data are zeros, which compress well."""
    size = LARGE if model == "large" else SMALL
    message = pb.ModelInferRequest(model_name=model, raw_input_contents=[bytes(size)])
    message.inputs.add(name="x", datatype="UINT8", shape=[1, size])
    return bytes(message.SerializeToString())


def infer(channel: Channel, model: str, **metadata: str) -> Any:
    return _method(channel, "ModelInfer")(request(model), metadata=_pairs(metadata))


def stream(channel: Channel, models: Sequence[str], **metadata: str) -> Any:
    return channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(map(request, models), metadata=_pairs(metadata))


def _method(channel: Channel, name: str) -> Any:
    return channel.unary_unary(f"{SERVICE}/{name}")


def _pairs(metadata: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in metadata.items())


async def trailers(call: Any) -> dict[str, str]:
    return dict(await call.trailing_metadata())


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_response_is_compressed_for_a_client_that_accepts_a_coding(relayed: Relay, coding: str) -> None:
    async with insecure_channel(relayed.address) as channel:
        answer = pb.ModelInferResponse.FromString(await infer(channel, "large", accept_encoding=coding))
    assert answer.raw_output_contents[0] == bytes(LARGE)
    assert len(relayed.answered) < LARGE / 10


async def test_a_response_is_not_compressed_for_a_client_that_accepts_no_coding(relayed: Relay) -> None:
    async with insecure_channel(relayed.address) as channel:
        for metadata in ({}, {"accept_encoding": "identity"}, {"accept_encoding": "gzip;q=0"}):
            await infer(channel, "large", **metadata)
    assert len(relayed.answered) > 3 * LARGE


async def test_a_short_response_is_not_compressed(relayed: Relay) -> None:
    async with insecure_channel(relayed.address) as channel:
        await infer(channel, "small", accept_encoding="gzip")
    assert bytes(SMALL) in relayed.answered


async def test_only_the_large_messages_of_a_stream_are_compressed(relayed: Relay) -> None:
    async with insecure_channel(relayed.address) as channel:
        call = stream(channel, ("small", "large", "small", "large"), accept_encoding="gzip")
        answers = [pb.ModelStreamInferResponse.FromString(each) async for each in call]
    sizes = [len(each.infer_response.raw_output_contents[0]) for each in answers]
    assert sizes == [SMALL, LARGE, SMALL, LARGE]
    assert relayed.answered.count(bytes(SMALL)) == 2
    assert len(relayed.answered) < LARGE / 10


async def test_the_timings_are_sent_in_a_trailer(plane: DataPlane) -> None:
    async with insecure_channel(plane.grpc) as channel:
        timing = (await trailers(infer(channel, "small")))["server-timing"]
    names, durations = zip(*re.findall(r"(\w+);dur=([\d.]+)", timing), strict=True)
    assert names == ("queue", "batch", "infer", "total")
    queue, batch, run, total = map(float, durations)
    assert 0 < run <= queue + batch + run <= total


async def test_the_id_of_a_call_is_returned_even_if_the_call_fails(plane: DataPlane) -> None:
    async with insecure_channel(plane.grpc) as channel:
        ready = _method(channel, "ServerReady")(b"", metadata=_pairs({"x-request-id": "r.1"}))
        assert (await trailers(infer(channel, "small", x_request_id="r.1")))["x-request-id"] == "r.1"
        answers = stream(channel, ["small"], x_request_id="r.1")
        assert len([answer async for answer in answers]) == 1
        assert (await trailers(answers))["x-request-id"] == "r.1"
        assert (await trailers(ready))["x-request-id"] == "r.1"
        refused = _method(channel, "ModelInfer")(request("large")[:9], metadata=_pairs({"x-request-id": "r.1"}))
        with pytest.raises(AioRpcError) as caught:
            await refused
        assert dict(caught.value.trailing_metadata())["x-request-id"] == "r.1"


@pytest.mark.parametrize("given", ["", "two words", "x" * 129])
async def test_a_call_without_a_valid_id_is_given_one(plane: DataPlane, given: str) -> None:
    async with insecure_channel(plane.grpc) as channel:
        found = [(await trailers(infer(channel, "small", x_request_id=given)))["x-request-id"] for _ in range(2)]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in found)
    assert found[0] != found[1]
