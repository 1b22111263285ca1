"""Members of a request's JSON that inputs, outputs and the request itself have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, NoReturn

from service.core.errors import InvalidInput, InvalidTensor
from service.core.signature import TensorSpec

HEADER_HINT = "where raw tensors follow the JSON, the header Inference-Header-Content-Length gives the JSON's length"


def json_object(text: bytes | memoryview) -> dict[str, Any]:
    """The members of a JSON object in UTF-8. Raises `InvalidInput`."""
    try:
        members = _JSON.decode(str(text, "utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InvalidInput(f"the request is not well-formed JSON: {error}", hint=HEADER_HINT) from error
    if not isinstance(members, dict):
        raise InvalidInput(f"the request is {brief(members)}, not a JSON object")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)  # Python's own would let NaN and Infinity pass


def parameters_of(entry: Mapping[str, Any], whose: str) -> Mapping[str, Any]:
    """The `parameters` of the request, or of an input or output; empty if there are none. Raises `InvalidInput`."""
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"the 'parameters' of {whose} are {brief(parameters)}, not an object")
    return parameters


def flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    """A parameter that is true or false. Raises `InvalidInput`."""
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"the parameter {name!r} is {brief(value)}, not true or false")
    return value


def whole(parameters: Mapping[str, Any], name: str) -> int:
    """A parameter that is a whole number, not negative; 0 if it is not there. Raises `InvalidInput`."""
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise InvalidInput(f"the parameter {name!r} is {brief(value)}, not a whole number")
    return value


def check_not_shared(parameters: Mapping[str, Any], name: str) -> None:
    """Raises `InvalidTensor` where the input `name` lies in memory that a client would share with Triton."""
    if "shared_memory_region" in parameters:
        raise InvalidTensor(f"input {brief(name)} is in shared memory, which is not supported", tensor=name)


def takes(*specs: TensorSpec) -> str:
    """A hint that lists the tensors to send instead."""
    return "the model takes " + ", ".join(f"{spec.name!r}: {spec.datatype} {list(spec.shape)}" for spec in specs)
