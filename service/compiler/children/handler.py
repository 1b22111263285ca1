"""Adapts the function of a role, which takes and returns messages, to the JSON that children receive and send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from service.compiler.messages.role import Request, Result, Role
from service.compiler.sandbox import Report

Handler = Callable[[Mapping[str, Any], Report], Mapping[str, Any]]


def handles(role: Role[Request, Result]) -> Callable[[Callable[[Request, Report], Result]], Handler]:
    """Returns a decorator for the function of `role`."""

    def decorate(function: Callable[[Request, Report], Result]) -> Handler:
        @wraps(function)
        def handle(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
            return function(role.request.from_json(request), report).to_json()

        return handle

    return decorate
