"""Keys and client certificates over gRPC."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc.aio import AioRpcError, Channel, secure_channel
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from scripts.certificates import make_certificate
from service.api.access.key_orders import apply_key_change
from service.api.grpc import inference_pb2 as pb
from service.core.access.key import Limits, Scope
from tests.support.data_plane import DataPlane, channel, sample_tables

pytestmark = pytest.mark.anyio
NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
ADMIN_KEY = "octet_cluster_" + 48 * "x"


@pytest.fixture
async def plane(tmp_path: Path) -> DataPlane:
    return DataPlane(sample_tables(), data_dir=tmp_path, admin_key=ADMIN_KEY)


@pytest.fixture
async def opened(plane: DataPlane) -> AsyncIterator[Channel]:
    async with channel(plane) as opened:
        yield opened


async def key(plane: DataPlane, *scopes: Scope, **limits: Any) -> tuple[tuple[str, str], ...]:
    """Returns request metadata that contains a new key."""
    _, text = plane.services.access.keys.create("a", scopes, Limits(**limits))
    await apply_key_change(plane.services)
    return metadata_with(text)


def metadata_with(text: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {text}"),)


def method(channel: Channel, name: str) -> Any:
    return channel.unary_unary(
        f"/{NAME}/{name}",
        request_serializer=getattr(pb, f"{name}Request").SerializeToString,
        response_deserializer=getattr(pb, f"{name}Response").FromString,
    )


def prediction() -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="INT8", shape=[1, 4])
    return pb.ModelInferRequest(
        model_name="int8", inputs=[tensor], raw_input_contents=[np.arange(4, dtype=np.int8).tobytes()]
    )


async def status(call: Any) -> grpc.StatusCode:
    try:
        await call
    except AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_methods_require_their_scope(plane: DataPlane, opened: Channel) -> None:
    keys = {scope: await key(plane, scope) for scope in Scope}
    cases = {
        "ModelInfer": (prediction(), Scope.PREDICT),
        "ModelMetadata": (pb.ModelMetadataRequest(name="int8"), Scope.PREDICT, Scope.READ),
        "RepositoryIndex": (pb.RepositoryIndexRequest(), Scope.PREDICT, Scope.READ),
        "RepositoryModelLoad": (pb.RepositoryModelLoadRequest(model_name="int8"), Scope.PUSH),
        "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest(model_name="affine"), Scope.PUSH),
    }
    for name, (request, *needed) in cases.items():
        assert await status(method(opened, name)(request)) is grpc.StatusCode.UNAUTHENTICATED, name
        for scope, metadata in keys.items():
            may = scope in (*needed, Scope.ADMIN)
            expected = grpc.StatusCode.OK if may else grpc.StatusCode.PERMISSION_DENIED
            assert await status(method(opened, name)(request, metadata=metadata)) is expected, (name, scope)
    assert [action for action, _ in plane.audited] == ["load", "load", "unload", "unload"]


async def test_probes_require_no_key(opened: Channel) -> None:
    assert (await method(opened, "ServerLive")(pb.ServerLiveRequest())).live
    assert await status(method(opened, "ServerReady")(pb.ServerReadyRequest())) is grpc.StatusCode.OK
    assert await status(HealthStub(opened).Check(HealthCheckRequest())) is grpc.StatusCode.OK


async def test_an_error_has_a_code(opened: Channel) -> None:
    with pytest.raises(AioRpcError) as caught:
        await method(opened, "ModelInfer")(prediction(), metadata=metadata_with(ADMIN_KEY[:-1] + "y"))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert ("octet-code", "unauthorized") in tuple(caught.value.trailing_metadata())
    assert ADMIN_KEY[14:-1] not in caught.value.details()


async def test_requests_are_counted_each_one_of_a_stream(plane: DataPlane, opened: Channel) -> None:
    metadata = await key(plane, Scope.PREDICT, requests_per_day=1)
    assert await status(method(opened, "ModelInfer")(prediction(), metadata=metadata)) is grpc.StatusCode.OK
    with pytest.raises(AioRpcError) as caught:
        await method(opened, "ModelInfer")(prediction(), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "grpc-retry-pushback-ms" in dict(tuple(caught.value.trailing_metadata()))

    async def requests() -> AsyncIterator[pb.ModelInferRequest]:
        for _ in range(3):
            yield prediction()

    stream = opened.stream_stream(
        f"/{NAME}/ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )
    call = stream(requests(), metadata=await key(plane, Scope.PREDICT, requests_per_day=2))
    answers = aiter(call)
    for _ in range(2):
        assert not (await anext(answers)).error_message
    assert await status(anext(answers)) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_calls_are_encrypted_with_a_certificate(tmp_path: Path) -> None:
    cert, private = make_certificate(tmp_path)
    plane = DataPlane(sample_tables(), data_dir=tmp_path, admin_key=ADMIN_KEY, tls_cert=cert, tls_key=private)
    async with plane.lifespan():
        host, port = plane.grpc.split(":")
        assert "BEGIN CERTIFICATE" in ssl.get_server_certificate((host, int(port)))
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        async with secure_channel(plane.grpc, trusted) as opened:
            answer = await method(opened, "ModelInfer")(prediction(), metadata=metadata_with(ADMIN_KEY))
        assert answer.raw_output_contents[0] == np.arange(4, dtype=np.int8).tobytes()
