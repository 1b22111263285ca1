"""The inputs of a predict request: JSON entries and the raw tensors behind them, checked against the signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any

from service.api.v2 import tensors
from service.api.v2.body import Body, Head
from service.api.v2.members import parameters_of, takes
from service.api.v2.tensors import Array
from service.core.errors import InvalidInput, InvalidTensor, UnsupportedFormat
from service.core.signature import ModelSignature, TensorSpec
from service.runtime.image import MAGIC_BYTES, is_picture

HEADER_HINT = "where raw tensors follow the JSON, the header Inference-Header-Content-Length gives the JSON's length"


@dataclass(frozen=True)
class Picture:
    """An input that came as a JPEG or PNG, still to be decoded."""

    data: bytes
    spec: TensorSpec


@dataclass(frozen=True)
class _Entry:
    """An entry of `inputs`: which input it is, and how many bytes of raw data it declares (None: it holds `data`)."""

    index: int
    members: Mapping[str, Any]
    binary_bytes: int | None


def parse_inputs(
    entries: Any, body: Body, signature: ModelSignature, batches: Sequence[int] = ()
) -> list[Array | Picture]:
    """The inputs in the signature's order, from the JSON's `inputs` and what is left of the body.

    Args:
        batches: the sizes that all of them may have besides that of the signature.

    Raises:
        InvalidInput: the entries are not well formed; `InvalidTensor` names the one that does not fit.
    """
    if not isinstance(entries, list):
        raise InvalidInput("'inputs' is missing or not an array", hint=takes(*signature.inputs))
    index_of = {spec.name: index for index, spec in enumerate(signature.inputs)}
    claims = [_claim(entry, signature, index_of) for entry in entries]
    declared = sum(claim.binary_bytes or 0 for claim in claims)
    if declared != body.remaining_bytes:
        raise InvalidInput(
            f"the inputs declare {declared} bytes of binary data, but {body.remaining_bytes} follow the JSON",
            hint=HEADER_HINT,
        )
    batch = _batch_of(claims, batches)
    found: dict[int, Array | Picture] = {}
    for claim in claims:
        spec = signature.inputs[claim.index].batched(batch)
        if claim.index in found:
            raise InvalidTensor(f"input {spec.name!r} is there twice", tensor=spec.name)
        found[claim.index] = _input(claim, spec, body, batches)
    for index, spec in enumerate(signature.inputs):
        if index not in found:
            raise InvalidTensor(f"input {spec.name!r} is missing", tensor=spec.name, hint=takes(spec))
    return [found[index] for index in range(len(signature.inputs))]


def parse_raw_input(head: Head, body: Body, signature: ModelSignature, batches: Sequence[int] = ()) -> Array | Picture:
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
    (spec,) = signature.inputs
    if head.media_type.startswith("image/") and head.media_type not in ("image/jpeg", "image/png"):
        raise UnsupportedFormat(f"pictures of type {head.media_type!r} are not read", hint="send a JPEG or PNG")
    length, one = body.remaining_bytes, tensors.size_bytes(spec)
    sizes = {one * batch: spec.batched(batch) for batch in (1, *batches)}
    wanted = " or ".join(map(str, sizes))
    may_be_tensor = length in sizes and not head.media_type.startswith("image/")
    may_be_picture = spec.is_image and is_picture(body.peek(MAGIC_BYTES))
    if may_be_tensor and may_be_picture and head.media_type != "application/octet-stream":
        raise InvalidTensor(
            f"the body may be a picture or the {wanted} bytes of input {spec.name!r}",
            tensor=spec.name,
            hint="say which: Content-Type image/jpeg, image/png or application/octet-stream",
        )
    if may_be_tensor:
        return tensors.from_binary(body, sizes[length])
    if may_be_picture or head.media_type.startswith("image/"):
        return Picture(bytes(body.take(length)), spec)
    picture = " or a JPEG or PNG" if spec.is_image else ""
    raise InvalidTensor(
        f"the body has {length} bytes; input {spec.name!r} takes {wanted}{picture}", tensor=spec.name, hint=takes(spec)
    )


def _claim(entry: Any, signature: ModelSignature, index_of: Mapping[str, int]) -> _Entry:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidInput("an entry of 'inputs' is not an object with a 'name'", hint=takes(*signature.inputs))
    name = entry["name"]
    if name not in index_of:
        raise InvalidTensor(f"the model has no input {brief(name)}", hint=takes(*signature.inputs))
    parameters = parameters_of(entry, f"input {name!r}")
    if "shared_memory_region" in parameters:
        raise InvalidTensor(f"input {name!r} is in shared memory, which is not supported", tensor=name)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidTensor(f"input {name!r} has binary_data_size {brief(size)}, not a number of bytes", tensor=name)
    if (size is None) == ("data" not in entry):
        both = "neither 'data' nor" if size is None else "both 'data' and"
        raise InvalidTensor(f"input {name!r} has {both} the parameter 'binary_data_size'", tensor=name)
    return _Entry(index_of[name], entry, size)


def _batch_of(claims: Sequence[_Entry], batches: Sequence[int]) -> int:
    """The batch that the first input says it has, if the model is built for it; what does not fit is refused later."""
    shape = claims[0].members.get("shape") if claims else None
    first = shape[0] if isinstance(shape, list) and shape else None
    return first if type(first) is int and first in batches else 1


def _input(entry: _Entry, spec: TensorSpec, body: Body, batches: Sequence[int]) -> Array | Picture:
    datatype, shape = entry.members.get("datatype"), entry.members.get("shape")
    if not isinstance(shape, list) or any(type(dimension) is not int for dimension in shape):
        raise InvalidTensor(f"input {spec.name!r} lacks a 'shape', an array of whole numbers", tensor=spec.name)
    if datatype == "BYTES" and spec.is_image:
        return _picture(entry, spec, shape, body)
    if datatype != spec.datatype:
        raise InvalidTensor(
            f"input {spec.name!r} is sent as {brief(datatype)}, but the model takes {spec.datatype}",
            tensor=spec.name,
            hint=takes(spec),
        )
    if shape != list(spec.shape):
        raise InvalidTensor(
            f"input {spec.name!r} has shape {brief(shape)}, but the model takes {list(spec.shape)}",
            tensor=spec.name,
            hint=_sizes(batches) if shape[1:] == list(spec.shape[1:]) else takes(spec),
        )
    if entry.binary_bytes is None:
        return tensors.from_json(entry.members["data"], spec)
    if entry.binary_bytes != tensors.size_bytes(spec):
        raise InvalidTensor(
            f"input {spec.name!r} declares {entry.binary_bytes} bytes of binary data, but its shape and datatype make"
            f" {tensors.size_bytes(spec)}",
            tensor=spec.name,
        )
    return tensors.from_binary(body, spec)


def _sizes(batches: Sequence[int]) -> str:
    if not batches:
        return "send one sample in each request, or push the model with --batch"
    return f"it is built for batches of {', '.join(map(str, (1, *batches)))}"


def _picture(entry: _Entry, spec: TensorSpec, shape: list[int], body: Body) -> Picture:
    if not shape or set(shape) != {1}:
        raise InvalidTensor(
            f"input {spec.name!r} has shape {brief(shape)}; as BYTES it is one picture, of shape [1]", tensor=spec.name
        )
    if entry.binary_bytes is None:
        raise InvalidTensor(
            f"input {spec.name!r} is a picture in JSON, which cannot hold its bytes",
            tensor=spec.name,
            hint="send it as binary data, with the parameter binary_data_size",
        )
    return Picture(tensors.from_bytes_element(body, spec, entry.binary_bytes), spec)
