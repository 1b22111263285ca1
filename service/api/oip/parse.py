"""A predict request over HTTP, from its headers and its body."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from service.api.oip.body import Body, Head
from service.api.oip.entries import named_tensors, raw_input
from service.api.oip.members import json_object
from service.api.oip.request import InferRequest, RequestedOutput, checked_request
from service.api.oip.request_templates import RequestTemplates
from service.core.errors import InvalidInput, TooLarge
from service.core.signature import ModelSignature
from service.workers.inference import Terms

# Limits of JSON, so that no request makes the event loop parse for long: names and shapes, and each number with the
# digits of a float64, its comma, and the white space of an indented document.
_JSON_BASE_BYTES = 64 << 10
_JSON_ELEMENT_BYTES = 48


def parse_request(
    head: Head, body: Body, signature: ModelSignature, batches: Sequence[int], templates: RequestTemplates
) -> InferRequest:
    """The request in `body`.

    Args:
        batches: the sizes in which it may come besides that of the signature.
        templates: of the requests that the model has had.

    Raises:
        InvalidInput: it is not well formed; `InvalidTensor` names the input.
        TooLarge: its JSON is longer than that of any request to this model needs to be.
        UnsupportedFormat: it is a picture of a kind that is not read.
    """
    if head.is_raw:
        outputs = [RequestedOutput(index, head.wants_binary) for index in range(len(signature.outputs))]
        return InferRequest(None, [raw_input(head, body, signature, batches)], outputs, Terms())
    inference_header = _inference_header(head, body, signature, max(batches, default=1))
    if known := templates.read(inference_header, body):
        return known
    envelope = json_object(inference_header)
    sent = named_tensors(envelope.get("inputs"), body, signature)
    request = checked_request(envelope, sent, signature, batches)
    templates.remember(inference_header, sent, request, signature)
    return request


def _inference_header(head: Head, body: Body, signature: ModelSignature, batch: int) -> bytes:
    """The request's JSON, taken off the front of `body`."""
    length = body.remaining_bytes if head.json_bytes is None else head.json_bytes
    if length > body.remaining_bytes:
        raise InvalidInput(
            f"Inference-Header-Content-Length is {length}, but the body has {body.remaining_bytes} bytes",
            hint="it is the length of the JSON before compression",
        )
    limit = _JSON_BASE_BYTES + _JSON_ELEMENT_BYTES * batch * sum(prod(spec.shape) for spec in signature.largest.inputs)
    if length > limit:
        raise TooLarge(
            f"the request has {length} bytes of JSON; one to this model needs at most {limit}",
            hint="send tensors as binary data: Inference-Header-Content-Length and binary_data_size",
        )
    return bytes(body.take(length))
