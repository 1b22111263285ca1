"""Clients without a .proto file get the protocol's definition from the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_reflection.v1alpha.reflection_pb2 import ExtensionRequest, ServerReflectionRequest, ServerReflectionResponse
from PIL import Image

from tests.support.compiled import PICTURES, expected
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S

SERVICE = "inference.GRPCInferenceService"
Ask = Callable[..., list[ServerReflectionResponse]]


@pytest.fixture
def channel(served: PlaneProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.grpc) as opened:
        yield opened


@pytest.fixture(params=["v1", "v1alpha"])
def ask(channel: grpc.Channel, request: pytest.FixtureRequest) -> Ask:
    """The two versions of the reflection service have the same messages."""
    method = f"/grpc.reflection.{request.param}.ServerReflection/ServerReflectionInfo"
    call = channel.stream_stream(
        method,
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    return lambda *requests: list(call(iter(requests), timeout=GIVE_UP_S))


def test_a_stub_can_be_built_from_reflection_alone(channel: grpc.Channel) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    method = pool.FindServiceByName(SERVICE).methods_by_name["ModelInfer"]
    request_type, answer_type = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    image = np.asarray(Image.open(PICTURES[0]).convert("L"), np.uint8)
    request: Any = request_type(model_name="digits", raw_input_contents=[image.tobytes()])
    request.inputs.add(name="image", datatype="UINT8", shape=[1, 16, 16, 1])
    infer = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=request_type.SerializeToString,
        response_deserializer=answer_type.FromString,
    )
    answer = infer(request, timeout=GIVE_UP_S)
    assert answer.raw_output_contents[0] == expected("digits_uint8.tflite")[0].tobytes()


def test_lists_the_services_and_describes_each(ask: Ask) -> None:
    (listed,) = ask(ServerReflectionRequest(list_services=""))
    names = [each.name for each in listed.list_services_response.service]
    assert names == [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]
    answers = ask(*(ServerReflectionRequest(file_containing_symbol=name) for name in names))
    for name, answer in zip(names, answers, strict=True):
        (data,) = answer.file_descriptor_response.file_descriptor_proto
        file = FileDescriptorProto.FromString(data)
        assert [f"{file.package}.{service.name}" for service in file.service] == [name]
        (again,) = ask(ServerReflectionRequest(file_by_filename=file.name))
        assert again.file_descriptor_response == answer.file_descriptor_response


@pytest.mark.parametrize(
    "symbol",
    [
        f"{SERVICE}.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor.shape",
        "inference.InferParameter.parameter_choice",
        "inference.TYPE_UINT8",
        "grpc.health.v1.HealthCheckResponse.SERVING",
    ],
)
def test_finds_every_type_of_name(ask: Ask, symbol: str) -> None:
    (answer,) = ask(ServerReflectionRequest(host="this", file_containing_symbol=symbol))
    file = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    package, _, name = symbol.rpartition(".")
    assert package.startswith(file.package)
    assert f'name: "{name}"' in str(file)
    assert answer.valid_host == "this"
    assert answer.original_request.file_containing_symbol == symbol


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (ServerReflectionRequest(), 3, "the request has no message_request"),
        (ServerReflectionRequest(file_by_filename="other.proto"), 5, "unknown file 'other.proto'"),
        (ServerReflectionRequest(file_containing_symbol="inference.Nothing"), 5, "unknown symbol"),
        (ServerReflectionRequest(file_containing_symbol="inference"), 5, "unknown symbol"),
        (ServerReflectionRequest(file_containing_symbol="ä" * 99), 5, "unknown symbol"),
        (ServerReflectionRequest(all_extension_numbers_of_type="inference.Nothing"), 5, "unknown message"),
        (ServerReflectionRequest(file_containing_extension=ExtensionRequest()), 5, "there are no extensions"),
    ],
)
def test_an_unknown_name_is_reported_and_the_stream_continues(
    ask: Ask, request_: ServerReflectionRequest, code: int, message: str
) -> None:
    refused, listed = ask(request_, ServerReflectionRequest(list_services="*"))
    assert refused.error_response.error_code == code
    assert refused.error_response.error_message.startswith(message)
    assert listed.list_services_response.service


def test_a_message_has_no_extensions(ask: Ask) -> None:
    (answer,) = ask(ServerReflectionRequest(all_extension_numbers_of_type="inference.ModelInferRequest"))
    assert answer.all_extension_numbers_response.base_type_name == "inference.ModelInferRequest"
    assert not answer.all_extension_numbers_response.extension_number


def test_an_invalid_request_ends_the_stream(channel: grpc.Channel) -> None:
    call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as refused:
        list(call(iter([b"\xff"]), timeout=GIVE_UP_S))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
