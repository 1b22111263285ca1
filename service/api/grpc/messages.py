"""Predict requests and answers as protobuf messages.

The raw tensors of a request are not parsed with it, which would copy them twice: they are found in the bytes of the
message, and copied once, from there into the memory that the compiled code reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from reprlib import repr as brief
from typing import Any

from google.protobuf.message import DecodeError

from service.api.grpc import inference_pb2 as pb
from service.api.oip.body import Body
from service.api.oip.inputs import Elements, NamedTensor
from service.api.oip.members import check_not_shared
from service.api.oip.outputs import output_of
from service.api.oip.request import InferRequest, checked_request
from service.api.oip.request_templates import RequestTemplates
from service.api.oip.tensors import Array, Numbers, Raw
from service.core.errors import InvalidInput, InvalidTensor
from service.core.signature import ModelSignature, TensorSpec
from service.workers.inference import Served

# Where the elements of a datatype are in `InferTensorContents`.
_MEMBER = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
}
# Of protobuf's wire format: https://protobuf.dev/programming-guides/encoding
_VARINT, _BYTES, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}
_RAW_TAG = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | _BYTES
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 10_000  # walking over them takes time of the event loop, which all requests share


@dataclass(frozen=True)
class Received:
    """A predict request whose tensors were not looked at.

    Attributes:
        head: all of it but the raw tensors.
        raw: those, in the order of the inputs; empty where the inputs hold their elements themselves.
        inference_header: `head`, serialized.
    """

    head: pb.ModelInferRequest
    raw: list[memoryview]
    inference_header: bytes

    @staticmethod
    def of(message: bytes) -> Received:
        """Raises `DecodeError`, and `InvalidInput` for one of too many fields."""
        rest, raw = _without_raw(message)
        return Received(pb.ModelInferRequest.FromString(rest), raw, rest)

    def request(
        self, signature: ModelSignature, batches: Sequence[int], templates: RequestTemplates | None = None
    ) -> InferRequest:
        """The parsed request, which `templates` may store. Raises `InvalidInput`; `InvalidTensor` names the input."""
        head = self.head
        if self.raw and len(self.raw) != len(head.inputs):
            raise InvalidInput(f"the request has {len(head.inputs)} inputs and {len(self.raw)} raw_input_contents")
        envelope = {
            "id": head.id or None,
            "parameters": values_of(head.parameters),
            "outputs": [{"name": each.name, "parameters": values_of(each.parameters)} for each in head.outputs],
        }
        inputs = [self._named_tensor(index, sent) for index, sent in enumerate(head.inputs)]
        request = checked_request(envelope, inputs, signature, batches)
        if templates is not None and not templates.knows(self.inference_header):
            templates.remember(self.inference_header, inputs, request, signature)
        return request

    def _named_tensor(self, index: int, sent: pb.ModelInferRequest.InferInputTensor) -> NamedTensor:
        check_not_shared(values_of(sent.parameters), sent.name)
        if not self.raw:
            return NamedTensor(sent.name, sent.datatype, sent.shape, _Contents(sent.contents))
        if sent.HasField("contents"):
            raise InvalidTensor(f"input {brief(sent.name)} has both contents and raw_input_contents", tensor=sent.name)
        raw: Elements = Raw(Body([self.raw[index]]), len(self.raw[index]))
        return NamedTensor(sent.name, sent.datatype, sent.shape, raw)


@dataclass(frozen=True)
class _Contents:
    """Elements in the member of their datatype: `inputs.Elements` in readable form."""

    contents: pb.InferTensorContents

    def tensor(self, spec: TensorSpec) -> Array:
        member = _MEMBER[spec.datatype]
        values = getattr(self.contents, member)
        if len(values) != prod(spec.shape):
            raise InvalidTensor(
                f"input {spec.name!r} has {len(values)} {member}, but its shape {list(spec.shape)} has"
                f" {prod(spec.shape)} elements",
                tensor=spec.name,
            )
        return Numbers(list(values)).tensor(spec)

    def one_bytes(self, spec: TensorSpec) -> bytes:
        elements = self.contents.bytes_contents
        if len(elements) != 1:
            raise InvalidTensor(
                f"input {spec.name!r} has {len(elements)} bytes_contents; it takes one picture", tensor=spec.name
            )
        return bytes(elements[0])


def response(served: Served, request: InferRequest, arrays: Sequence[Array]) -> pb.ModelInferResponse:
    """The answer with `arrays`, all the model's outputs, in the form that `request` asks for; each raw, little-endian.

    Raises:
        Unsupported: the best of an output are wanted that holds NaN.
    """
    identity = served.identity
    message = pb.ModelInferResponse(model_name=identity.model, model_version=str(identity.version), id=request.id or "")
    for wanted in request.outputs:
        output = output_of(served, wanted, arrays)
        message.outputs.add(name=output.name, datatype=output.datatype, shape=output.shape)
        message.raw_output_contents.append(output.packed())
    return message


def values_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of any message as JSON would have them; one that holds nothing is none."""
    chosen = {name: each.WhichOneof("parameter_choice") for name, each in parameters.items()}
    return {name: getattr(parameters[name], member) for name, member in chosen.items() if member}


def _without_raw(message: bytes) -> tuple[bytes, list[memoryview]]:
    """The message without its `raw_input_contents`, and them."""
    view, rest, raw = memoryview(message), [], []
    kept_from = 0
    for tag, start, value, end in _fields(message):
        if tag == _RAW_TAG:
            rest.append(view[kept_from:start])
            raw.append(view[value:end])
            kept_from = end
    return b"".join([*rest, view[kept_from:]]), raw


def _fields(message: bytes) -> Iterable[tuple[int, int, int, int]]:
    """Tag, start, start of the value and end of each field."""
    at = 0
    for _ in range(_MAX_FIELDS):
        if at == len(message):
            return
        tag, value = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _varint(message, value)
            end = value + length
        elif kind == _VARINT:
            end = _varint(message, value)[1]
        elif kind in _FIXED_BYTES:
            end = value + _FIXED_BYTES[kind]
        else:
            raise DecodeError(f"{kind} is no wire type")
        if end > len(message):
            raise DecodeError("a field ends after the message")
        yield tag, at, value, end
        at = end
    raise InvalidInput(f"the message has more than {_MAX_FIELDS} fields")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    number = 0
    for index, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise DecodeError("a number does not end")
