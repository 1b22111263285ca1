"""Members of a request's JSON that inputs, outputs and the request itself have in common."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any

from service.core.errors import InvalidInput
from service.core.signature import TensorSpec


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


def takes(*specs: TensorSpec) -> str:
    """What to send instead, as a hint."""
    return "the model takes " + ", ".join(f"{spec.name!r}: {spec.datatype} {list(spec.shape)}" for spec in specs)
