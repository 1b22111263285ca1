"""Predict requests as bytes: what is found in them, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from service.api.grpc import inference_pb2 as pb
from service.api.grpc.messages import Received, values_of
from service.core.errors import InvalidInput, InvalidTensor
from service.core.signature import ModelSignature
from tests.support.runners import affine, digits, identity, tensor

UINT8 = ModelSignature((tensor("x", "UINT8", 1, 4),), (tensor("y", "UINT8", 1, 4),))


def request_of(*raw: bytes, datatype: str = "UINT8", shape: tuple[int, ...] = (1, 4)) -> pb.ModelInferRequest:
    inputs = [pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)]
    return pb.ModelInferRequest(model_name="m", inputs=inputs, raw_input_contents=raw)


def parsed(message: pb.ModelInferRequest, signature: ModelSignature = UINT8) -> list[Any]:
    inputs = Received.of(message.SerializeToString()).request(signature, ()).inputs
    assert all(isinstance(array, np.ndarray) for array in inputs)
    return inputs


@given(
    name=st.text(max_size=20),
    identity=st.text(max_size=300),
    raw=st.lists(st.binary(max_size=300), max_size=4),
    parameters=st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=3),
)
def test_a_message_is_its_head_and_its_raw_tensors(
    name: str, identity: str, raw: list[bytes], parameters: dict[str, int]
) -> None:
    message = pb.ModelInferRequest(model_name=name, id=identity, raw_input_contents=raw)
    for key, value in parameters.items():
        message.parameters[key].int64_param = value
    received = Received.of(message.SerializeToString())
    assert [bytes(each) for each in received.raw] == raw
    assert values_of(received.head.parameters) == parameters
    del message.raw_input_contents[:]
    assert received.head == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_to_both_or_to_neither(message: bytes) -> None:
    """Ours walks over the fields, protobuf's own parser decides."""
    try:
        theirs = pb.ModelInferRequest.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            Received.of(message)
        return
    try:
        received = Received.of(message)
    except DecodeError:  # groups, which proto3 does not have; and tags beyond the numbers that fields may have
        return
    assert [bytes(each) for each in received.raw] == list(theirs.raw_input_contents)


def test_raw_tensors_lie_in_aligned_memory_of_their_own() -> None:
    (array,) = parsed(request_of(bytes([1, 2, 3, 4])))
    np.testing.assert_array_equal(array, [[1, 2, 3, 4]])
    assert array.ctypes.data % 64 == 0
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("datatype", "member", "values"),
    [
        ("BOOL", "bool_contents", [True, False, True, False]),
        ("UINT8", "uint_contents", [0, 255, 1, 2]),
        ("UINT16", "uint_contents", [0, 2**16 - 1, 1, 2]),
        ("INT8", "int_contents", [-128, 127, 0, 1]),
        ("INT16", "int_contents", [-(2**15), 2**15 - 1, 0, 1]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1, 0, 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1, 0, 1]),
        ("FP32", "fp32_contents", [-1.5, 3.0, 0.0, 2.0**100]),
    ],
)
def test_elements_in_the_member_of_their_datatype(datatype: str, member: str, values: list[object]) -> None:
    message = request_of(datatype=datatype)
    getattr(message.inputs[0].contents, member).extend(values)
    (array,) = parsed(message, identity(datatype, 1, 4).signature)
    np.testing.assert_array_equal(array, [values])


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (request_of(b"1234", b"5678"), "has 1 inputs and 2 raw_input_contents"),
        (request_of(b"12345"), "declares 5 bytes of binary data"),
        (request_of(), "has 0 uint_contents, but its shape [1, 4] has 4 elements"),
        (request_of(b"1234", shape=(4,)), "has shape [4]"),
        (request_of(b"1234", datatype="INT8"), "is sent as 'INT8'"),
        (pb.ModelInferRequest(), "input 'x' is missing"),
    ],
)
def test_what_does_not_fit_is_refused(message: pb.ModelInferRequest, error: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(error)):
        parsed(message)


@pytest.mark.parametrize(("values", "error"), [([256, 0, 0, 0], "256"), ([1, 2, 3], "has 3 uint_contents")])
def test_elements_out_of_range_or_number(values: list[int], error: str) -> None:
    message = request_of()
    message.inputs[0].contents.uint_contents.extend(values)
    with pytest.raises(InvalidTensor, match=error):
        parsed(message)


def test_elements_in_both_forms() -> None:
    message = request_of(b"1234")
    message.inputs[0].contents.uint_contents.extend([1, 2, 3, 4])
    with pytest.raises(InvalidTensor, match="both contents and raw_input_contents"):
        parsed(message)


def test_a_float_that_is_none() -> None:
    message = request_of(datatype="FP32")
    message.inputs[0].contents.fp32_contents.extend([0, 0, float("nan"), 0])
    with pytest.raises(InvalidTensor, match="outside the range"):
        parsed(message, identity("FP32", 1, 4).signature)


def test_shared_memory_is_refused() -> None:
    message = request_of()
    message.inputs[0].parameters["shared_memory_region"].string_param = "r"
    with pytest.raises(InvalidTensor, match="shared memory"):
        parsed(message)


def test_inputs_in_another_order_are_told_apart_by_their_names() -> None:
    arrays: dict[str, Any] = {
        "b": np.array([[1, 2, 3, 4]], np.int64),
        "x": np.array([[0.5, 1, 2, 3]], np.float32),
        "a": np.array([[5, 6, 7, 8]], np.int8),
    }
    message = pb.ModelInferRequest(raw_input_contents=[array.tobytes() for array in arrays.values()])
    for (name, array), datatype in zip(arrays.items(), ("INT64", "FP32", "INT8"), strict=True):
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
    for name, array in zip(("x", "a", "b"), parsed(message, affine().signature), strict=True):
        np.testing.assert_array_equal(array, arrays[name])


def test_outputs_are_named() -> None:
    message = pb.ModelInferRequest(raw_input_contents=[bytes(64)])
    message.inputs.add(name="image", datatype="UINT8", shape=(1, 8, 8, 1))
    message.outputs.add(name="top")
    outputs = Received.of(message.SerializeToString()).request(digits().signature, ()).outputs
    assert [each.index for each in outputs] == [1]


def test_a_message_of_very_many_fields_is_refused_before_it_takes_time() -> None:
    with pytest.raises(InvalidInput, match="more than 10000 fields"):
        Received.of(pb.ModelInferRequest(raw_input_contents=[b""] * 1_000_000).SerializeToString())
