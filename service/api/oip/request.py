"""A predict request of the Open Inference Protocol, checked against the signature of the model that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any

from service.api.oip.inputs import NamedTensor, Picture, gather
from service.api.oip.members import flag, parameters_of, whole
from service.api.oip.tensors import Array
from service.core.errors import InvalidInput
from service.core.signature import ModelSignature
from service.workers.inference import Step, Terms

_SEQUENCE_ID_LENGTH = 128  # what a client may have us keep


@dataclass(frozen=True)
class RequestedOutput:
    """An output of the model, by its position in the signature.

    Attributes:
        classes: how many of its greatest elements are wanted, as text; 0 for all of it.
        dequantize: whether real values are wanted; never of an output that is not quantized.
    """

    index: int
    binary: bool
    classes: int = 0
    dequantize: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether the answer holds the bytes that the model wrote."""
        return not self.classes and not self.dequantize


@dataclass(frozen=True)
class InferRequest:
    """A parsed inference request.

    Attributes:
        id: to be echoed; None if it sent none.
        inputs: in the order of the signature.
        outputs: in the order in which they were asked for.
        terms: of the queue: Triton's parameters `priority` and `timeout` (in microseconds, 0 for none), and the
            protocol's `sequence_id` (0 or empty for none), `sequence_start` and `sequence_end`.
    """

    id: str | None
    inputs: list[Array | Picture]
    outputs: list[RequestedOutput]
    terms: Terms


def checked_request(
    envelope: Mapping[str, Any], inputs: Sequence[NamedTensor], signature: ModelSignature, batches: Sequence[int] = ()
) -> InferRequest:
    """The request whose members are those of `envelope` (`id`, `parameters`, `outputs`) and whose inputs are `inputs`.

    Raises:
        InvalidInput: a member is not well formed; `InvalidTensor` names an input that does not fit.
    """
    identity = envelope.get("id")
    if identity is not None and not isinstance(identity, str):
        raise InvalidInput(f"'id' is {brief(identity)}, not a string")
    parameters = parameters_of(envelope, "the request")
    outputs = _outputs(envelope.get("outputs"), signature, parameters)
    return InferRequest(identity, gather(inputs, signature, batches), outputs, _terms(parameters))


def _terms(parameters: Mapping[str, Any]) -> Terms:
    timeout_us = whole(parameters, "timeout")
    return Terms(whole(parameters, "priority"), timeout_us / 1e6 if timeout_us else None, _step(parameters))


def _step(parameters: Mapping[str, Any]) -> Step | None:
    identity = parameters.get("sequence_id", 0)
    if isinstance(identity, str) and len(identity) > _SEQUENCE_ID_LENGTH:
        raise InvalidInput(f"the parameter 'sequence_id' has {len(identity)} characters, not {_SEQUENCE_ID_LENGTH}")
    if not isinstance(identity, str):
        identity = whole(parameters, "sequence_id")
    if not identity:
        return None
    return Step(identity, flag(parameters, "sequence_start", False), flag(parameters, "sequence_end", False))


def _outputs(entries: Any, signature: ModelSignature, request: Mapping[str, Any]) -> list[RequestedOutput]:
    """The outputs that `entries` name, or all. The parameters of the `request` are the defaults of an entry's."""
    binary, dequantize = flag(request, "binary_data_output", False), flag(request, "dequantize", False)
    is_quantized = [spec.quantization is not None for spec in signature.outputs]
    if entries is None or entries == []:
        return [
            RequestedOutput(index, binary, dequantize=dequantize and quantized)
            for index, quantized in enumerate(is_quantized)
        ]
    if not isinstance(entries, list):
        raise InvalidInput("'outputs' is not an array")
    index_of = {spec.name: index for index, spec in enumerate(signature.outputs)}
    found: dict[int, RequestedOutput] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in index_of:
            known = ", ".join(repr(spec.name) for spec in signature.outputs)
            raise InvalidInput(f"the model has no output {brief(name)}", hint=f"it has {known}")
        if index_of[name] in found:
            raise InvalidInput(f"output {name!r} is requested twice", tensor=name)
        parameters = parameters_of(entry, f"output {name!r}")
        if "shared_memory_region" in parameters:
            raise InvalidInput(f"output {name!r} asks for shared memory, which is not supported", tensor=name)
        index = index_of[name]
        found[index] = RequestedOutput(
            index,
            flag(parameters, "binary_data", binary),
            whole(parameters, "classification"),
            flag(parameters, "dequantize", dequantize) and is_quantized[index],
        )
    return list(found.values())
