"""Parses the JSON of requests, and their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, NoReturn

from service.core.errors import InvalidInput


def json_object(text: bytes) -> dict[str, Any]:
    """Returns the members of a JSON object in UTF-8. Raises `InvalidInput`."""
    try:
        members = _JSON.decode(text.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InvalidInput(f"the request is not well-formed JSON: {error}") from error
    if not isinstance(members, dict):
        raise InvalidInput(f"the request is {brief(members)}, not a JSON object")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)  # Python's default decoder accepts NaN and Infinity


def parameters_of(entry: Mapping[str, Any], whose: str) -> Mapping[str, Any]:
    """Returns the `parameters` of a request, or an empty mapping if it has none. Raises `InvalidInput`."""
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"the 'parameters' of {whose} are {brief(parameters)}, not an object")
    return parameters


def flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    """Returns a parameter that is true or false. Raises `InvalidInput`."""
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"the parameter {name!r} is {brief(value)}, not true or false")
    return value
