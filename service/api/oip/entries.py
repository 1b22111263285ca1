"""The inputs of a request over HTTP: entries of its JSON and the raw tensors behind it, or one raw body."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as brief
from typing import Any

from service.api.oip import tensors
from service.api.oip.body import Body, Head
from service.api.oip.inputs import NamedTensor, Picture
from service.api.oip.members import HEADER_HINT, check_not_shared, parameters_of, takes
from service.api.oip.tensors import Array, Numbers, Raw
from service.core.errors import InvalidInput, InvalidTensor, UnsupportedFormat
from service.core.picture import MAGIC_BYTES, is_picture
from service.core.signature import ModelSignature


def named_tensors(entries: Any, body: Body, signature: ModelSignature) -> list[NamedTensor]:
    """The inputs that the JSON's `inputs` and what is left of the body say.

    Raises:
        InvalidInput: the entries are not well formed, or do not add up to the body; `InvalidTensor` names the one.
    """
    if not isinstance(entries, list):
        raise InvalidInput("'inputs' is missing or not an array", hint=takes(*signature.inputs))
    sent = [_named_tensor(entry, body, signature) for entry in entries]
    declared = sum(each.elements.size_bytes for each in sent if isinstance(each.elements, Raw))
    if declared != body.remaining_bytes:
        raise InvalidInput(
            f"the inputs declare {declared} bytes of binary data, but {body.remaining_bytes} follow the JSON",
            hint=HEADER_HINT,
        )
    return sent


def _named_tensor(entry: Any, body: Body, signature: ModelSignature) -> NamedTensor:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidInput("an entry of 'inputs' is not an object with a 'name'", hint=takes(*signature.inputs))
    name, shape = entry["name"], entry.get("shape")
    if not isinstance(shape, list) or any(type(dimension) is not int for dimension in shape):
        raise InvalidTensor(f"input {brief(name)} lacks a 'shape', an array of whole numbers", tensor=name)
    parameters = parameters_of(entry, f"input {brief(name)}")
    check_not_shared(parameters, name)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidTensor(
            f"input {brief(name)} has binary_data_size {brief(size)}, not a number of bytes", tensor=name
        )
    if (size is None) == ("data" not in entry):
        both = "neither 'data' nor" if size is None else "both 'data' and"
        raise InvalidTensor(f"input {brief(name)} has {both} the parameter 'binary_data_size'", tensor=name)
    elements = Numbers(entry["data"]) if size is None else Raw(body, size)
    return NamedTensor(name, entry.get("datatype"), shape, elements)


def raw_input(head: Head, body: Body, signature: ModelSignature, batches: Sequence[int] = ()) -> Array | Picture:
    """The body as the model's one input: a tensor if it has the size of one, or of a batch, or else a picture.

    A body that could be both is refused unless its Content-Type says which: a wrong guess would be a wrong answer.

    Raises:
        InvalidInput: the model takes several inputs; `InvalidTensor`: the body does not fit the one.
        UnsupportedFormat: it is a picture of a kind that is not read.
    """
    if len(signature.inputs) != 1:
        raise InvalidInput(
            f"a raw body is one input, and the model takes {len(signature.inputs)}",
            hint="send JSON, or JSON and tensors with the header Inference-Header-Content-Length",
        )
    (spec,) = signature.largest.inputs
    if head.media_type.startswith("image/") and head.media_type not in ("image/jpeg", "image/png"):
        raise UnsupportedFormat(f"pictures of type {head.media_type!r} are not supported", hint="send a JPEG or PNG")
    length, one = body.remaining_bytes, tensors.size_bytes(spec)
    sizes = {one * batch: spec.batched(batch) for batch in (1, *batches)}
    sizes |= {tensors.size_bytes(each.inputs[0]): each.inputs[0] for each in signature.buckets}
    wanted = f"{one}, or {one} for each sample of up to {max(batches)}," if batches else str(one)
    may_be_tensor = length in sizes and not head.media_type.startswith("image/")
    may_be_picture = spec.is_image and is_picture(body.peek(MAGIC_BYTES))
    if may_be_tensor and may_be_picture and head.media_type != "application/octet-stream":
        raise InvalidTensor(
            f"the body may be a picture or the {length} bytes of input {spec.name!r}",
            tensor=spec.name,
            hint="set Content-Type to image/jpeg, image/png or application/octet-stream",
        )
    if may_be_tensor:
        return tensors.from_binary(body, sizes[length])
    if may_be_picture or head.media_type.startswith("image/"):
        return Picture(bytes(body.take(length)), spec)
    picture = " or a JPEG or PNG" if spec.is_image else ""
    raise InvalidTensor(
        f"the body has {length} bytes; input {spec.name!r} takes {wanted}{picture}", tensor=spec.name, hint=takes(spec)
    )
