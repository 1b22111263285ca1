"""Tests that Octet's messages have the same names, numbers and types as those of an unmodified client."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from scripts import messages
from service.api.grpc import inference_pb2

THEIRS = {**service_pb2.DESCRIPTOR.message_types_by_name, **model_config_pb2.DESCRIPTOR.message_types_by_name}


def fields(message: Any) -> dict[str, tuple[int, Any, bool, str]]:
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            (field.message_type or field.enum_type).full_name if field.message_type or field.enum_type else "",
        )
        for field in message.fields
    }


@pytest.mark.parametrize("name", inference_pb2.DESCRIPTOR.message_types_by_name)
def test_messages_have_the_members_of_the_clients(name: str) -> None:
    pairs = [(inference_pb2.DESCRIPTOR.message_types_by_name[name], THEIRS[name])]
    for ours, theirs in pairs:
        assert fields(ours).items() <= fields(theirs).items()
        pairs += [(nested, theirs.nested_types_by_name[nested.name]) for nested in ours.nested_types]


def test_methods_are_those_of_the_client() -> None:
    def methods(service: Any) -> dict[str, tuple[str, str, bool, bool]]:
        return {
            method.name: (
                method.input_type.full_name,
                method.output_type.full_name,
                method.client_streaming,
                method.server_streaming,
            )
            for method in service.methods
        }

    ours = methods(inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"])
    theirs = methods(service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"])
    assert ours.items() <= theirs.items()
    left_out = {name for name in theirs if "SharedMemory" not in name} - ours.keys()
    assert left_out == {"TraceSetting", "LogSettings"}


def test_datatypes_have_the_numbers_of_the_client() -> None:
    assert inference_pb2.DataType.items() == model_config_pb2.DataType.items()


def test_the_generated_files_match_the_proto() -> None:
    for name, text in messages.generated().items():
        assert (messages.ROOT / name).read_text() == text, "make messages writes it"
