"""The inputs of a predict request, checked against the signature of the model; by whichever wire they came.

A wire gives `NamedTensor`s, whose elements are read only once everything that was said of them has been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Protocol

from service.api.oip.members import takes
from service.api.oip.tensors import Array
from service.core.buckets import check_shape
from service.core.errors import InvalidTensor
from service.core.signature import ModelSignature, TensorSpec


class Elements(Protocol):
    """The elements of one input, in the form in which they came. Read once, in the order of the request's inputs."""

    def tensor(self, spec: TensorSpec) -> Array:
        """The elements as `spec` describes them, in aligned memory. Raises `InvalidTensor`."""

    def one_bytes(self, spec: TensorSpec) -> bytes:
        """The only element of a BYTES tensor, for the input that `spec` describes. Raises `InvalidTensor`."""


@dataclass(frozen=True)
class NamedTensor:
    """An input as its sender describes it; `shape` is one of whole numbers, and nothing else is checked."""

    name: str
    datatype: object
    shape: Sequence[int]
    elements: Elements


@dataclass(frozen=True)
class Picture:
    """An input that came as a JPEG or PNG, still to be decoded."""

    data: bytes
    spec: TensorSpec


def gather(
    sent: Sequence[NamedTensor], signature: ModelSignature, batches: Sequence[int] = ()
) -> list[Array | Picture]:
    """The inputs in the signature's order.

    Args:
        batches: the sizes that all of them may have besides that of the signature.

    Raises:
        InvalidTensor: one of them is unknown, missing, there twice, or not what the model takes.
    """
    index_of = {spec.name: index for index, spec in enumerate(signature.inputs)}
    batch = _batch_of(sent, batches)
    found: dict[int, Array | Picture] = {}
    for each in sent:
        if each.name not in index_of:
            raise InvalidTensor(f"the model has no input {brief(each.name)}", hint=takes(*signature.inputs))
        index = index_of[each.name]
        if index in found:
            raise InvalidTensor(f"input {each.name!r} is there twice", tensor=each.name)
        if signature.buckets and each.datatype != "BYTES":
            spec = check_shape(signature, index, each.shape)
        else:
            spec = signature.largest.inputs[index].batched(batch)
        found[index] = _input(each, spec, batches)
    for index, spec in enumerate(signature.inputs):
        if index not in found:
            raise InvalidTensor(f"input {spec.name!r} is missing", tensor=spec.name, hint=takes(spec))
    return [found[index] for index in range(len(signature.inputs))]


def _batch_of(sent: Sequence[NamedTensor], batches: Sequence[int]) -> int:
    """The batch that the first input says it has, if the model is built for it; what does not fit is refused later."""
    shape = sent[0].shape if sent else ()
    return shape[0] if shape and shape[0] in batches else 1


def _input(sent: NamedTensor, spec: TensorSpec, batches: Sequence[int]) -> Array | Picture:
    shape = list(sent.shape)
    if sent.datatype == "BYTES" and spec.is_image:
        if not shape or set(shape) != {1}:
            raise InvalidTensor(
                f"input {spec.name!r} has shape {brief(shape)}; as BYTES it is one picture, of shape [1]",
                tensor=spec.name,
            )
        return Picture(sent.elements.one_bytes(spec), spec)
    if sent.datatype != spec.datatype:
        raise InvalidTensor(
            f"input {spec.name!r} is sent as {brief(sent.datatype)}, but the model takes {spec.datatype}",
            tensor=spec.name,
            hint=takes(spec),
        )
    if shape != list(spec.shape):
        raise InvalidTensor(
            f"input {spec.name!r} has shape {brief(shape)}, but the model takes {list(spec.shape)}",
            tensor=spec.name,
            hint=_sizes(batches) if shape[1:] == list(spec.shape[1:]) else takes(spec),
        )
    return sent.elements.tensor(spec)


def _sizes(batches: Sequence[int]) -> str:
    if not batches:
        return "send one sample in each request, or push the model with --batch"
    return f"it is built for batches of up to {max(batches)}"
